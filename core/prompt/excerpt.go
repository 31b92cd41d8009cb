package prompt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// rest stands where something was cut.
const rest = " […]"

// Seen returns what a person reading a page would see of a text: without characters that show as nothing, and without HTML comments; and
// how many of each were removed. Line ends become LF, and what is not UTF-8 goes.
func Seen(s string) (seen string, unseenRunes, comments int) {
	s = strings.ToValidUTF8(s, "")
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	var b strings.Builder
	b.Grow(len(s))
	var last rune
	for _, r := range s {
		if unseen(r) && (r != zeroWidthJoiner || !joinsEmoji(last)) {
			unseenRunes++
			continue
		}
		b.WriteRune(r)
		last = r
	}
	s = b.String()
	comments = strings.Count(s, "<!--")
	return dropComments(s), unseenRunes, comments
}

// Line makes a text one line of at most so many characters, of which each shows.
func Line(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.Join(strings.Fields(s), " ")
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most-1]) + "…"
	}
	return s
}

// Cut shortens a text to a number of bytes, and says at its end that it did. It cuts neither inside a character nor between one and what
// changes how it looks.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	i := max(most-len(rest), 0)
	for i > 0 && !utf8.RuneStart(s[i]) {
		i--
	}
	for steps := 0; i > 0 && steps < 32; steps++ {
		next, _ := utf8.DecodeRuneInString(s[i:])
		last, size := utf8.DecodeLastRuneInString(s[:i])
		if !unicode.In(next, unicode.Mn, unicode.Me, unicode.Mc) && next != zeroWidthJoiner && last != zeroWidthJoiner &&
			(next < 0x1F3FB || next > 0x1F3FF) {
			break
		}
		i -= size
	}
	return strings.ToValidUTF8(s[:i], "") + rest
}
