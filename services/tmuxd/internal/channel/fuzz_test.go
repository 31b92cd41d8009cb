package channel

import "testing"

// What an agent's own program answers proves something only where it says it in so many words.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"state":"taken","conversation":"c1"}`))
	f.Add([]byte(`{"state":"queued","busy":true}`))
	f.Add([]byte(`{"state":"TAKEN"}`))
	f.Add([]byte(`{"state":"taken"`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		got, err := read(answer)
		if got.Taken && got.Queued || err != nil && (got.Taken || got.Queued) {
			t.Fatalf("%q is %+v, %v", answer, got, err)
		}
	})
}
