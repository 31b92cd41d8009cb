package access

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzParseInvitation(f *testing.F) {
	text, _ := Invite(bytes.Repeat([]byte{7}, 32))
	f.Add(text, []byte{1})
	f.Add("muxpostjoin_a_b_c", []byte{})
	f.Fuzz(func(t *testing.T, text string, fingerprint []byte) {
		if _, _, _, err := ParseInvitation(text); err != nil && len(text) > 12 && strings.Contains(err.Error(), text) {
			t.Fatalf("the error repeats what may be a secret: %v", err)
		}
		given, kept := Invite(fingerprint)
		id, hash, read, err := ParseInvitation(" " + given + "\n")
		if len(fingerprint) != 32 {
			if err == nil {
				t.Fatalf("a fingerprint of %d bytes", len(fingerprint))
			}
			return
		}
		if err != nil || id != kept.ID || !bytes.Equal(hash, kept.Hash) || !bytes.Equal(read, fingerprint) {
			t.Fatalf("%s reads as %s, %x, %x, %v", given, id, hash, read, err)
		}
	})
}
