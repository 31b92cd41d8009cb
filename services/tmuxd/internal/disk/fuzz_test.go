package disk

import (
	"os"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// What a disk made of the rest of a journal hides nothing that was written whole before it: it is found, or the journal is said to be unreadable.
func FuzzEntries(f *testing.F) {
	f.Add([]byte(`{"id":"delivery-0001","ph`))
	f.Add([]byte("\x00\x00\x00\n"))
	f.Add([]byte("{\"id\":\"delivery-0001\",\"phase\":\"later\"}\n"))
	f.Add([]byte("null\n[]\n7\n"))
	f.Fuzz(func(t *testing.T, rest []byte) {
		d := open(t)
		if err := d.Append(target, host.Entry{ID: id, Phase: session.Submitted, Stamp: "s1"}, true); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(d.path("journal", target+".jsonl"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(rest); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := d.Entries(target, id)
		if err == nil && (len(got) == 0 || got[0].Phase != session.Submitted || got[0].Stamp != "s1") {
			t.Fatalf("before %q there was one, and now there are %+v", rest, got)
		}
	})
}
