package server

import "testing"

func FuzzPageToken(f *testing.F) {
	f.Add(pageToken(7))
	f.Add(pageToken(-7))
	f.Add("x")
	f.Fuzz(func(t *testing.T, token string) {
		id, err := parsePageToken(token)
		if err != nil || token == "" {
			return
		}
		if again, err := parsePageToken(pageToken(id)); id <= 0 || err != nil || again != id {
			t.Fatalf("%q is %d, and that is %d, %v", token, id, again, err)
		}
	})
}
