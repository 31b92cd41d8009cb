package settings

import (
	"strings"
	"testing"
)

// A base URL may hold a secret in the wrong place: it is refused, and not repeated.
func FuzzParseBaseURL(f *testing.F) {
	for _, text := range []string{"", "https://github.example.com", "https://h/api/v3", "http://u:geheim@h/", "https://h?token=geheim", "ftp://h", "https://[::1]:8/", "//h", "%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := ParseBaseURL(text)
		switch {
		case err != nil:
			if len(text) > 20 && strings.Contains(err.Error(), text) {
				t.Fatalf("the error repeats it: %v", err)
			}
		case u.Host == "" || u.User != nil || u.RawQuery != "" || !strings.HasSuffix(u.Path, "/"):
			t.Fatalf("%q is %v", text, u)
		default:
			again, err := ParseBaseURL(u.String())
			if err != nil || again.String() != u.String() {
				t.Fatalf("%q is %v, and that is %v, %v", text, u, again, err)
			}
		}
	})
}
