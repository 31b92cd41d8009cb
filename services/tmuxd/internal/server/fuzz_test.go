package server

import (
	"testing"

	"muxpost.dev/muxpost/core/workitem"
)

func FuzzPageToken(f *testing.F) {
	f.Add(pageToken("loop-octo-widget-7"))
	f.Add(pageToken("../x"))
	f.Add("x")
	f.Fuzz(func(t *testing.T, token string) {
		after, err := readPageToken(token)
		if err != nil || token == "" {
			return
		}
		if again, err := readPageToken(pageToken(after)); !workitem.ValidTarget(after) || err != nil || again != after {
			t.Fatalf("%q is %q, and that is %q, %v", token, after, again, err)
		}
	})
}
