package notes

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel writes whole events; what a reader that was cut short makes of the rest is no name.
func FuzzParse(f *testing.F) {
	f.Add("a.b", []byte{})
	f.Add("", []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, name string, rest []byte) {
		parse(rest)
		name, _, _ = strings.Cut(name, "\x00")
		event := make([]byte, unix.SizeofInotifyEvent, unix.SizeofInotifyEvent+len(name)+1)
		binary.NativeEndian.PutUint32(event[12:], uint32(len(name)+1))
		event = append(append(event, name...), 0)
		got, _ := parse(append(event, rest[:min(len(rest), unix.SizeofInotifyEvent-1)]...))
		if name == "" && len(got) != 0 || name != "" && !slices.Equal(got, []string{name}) {
			t.Fatalf("%q came out as %q", name, got)
		}
	})
}
