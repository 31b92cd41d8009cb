package tmux

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

const (
	// maxLine is the longest line that is read from a server: a row of a screen with all its attributes is far below it.
	maxLine = 1 << 20
	// maxBlock bounds what one command prints, in bytes. The rest is read and dropped, and the block says so.
	maxBlock = 8 << 20
	// buffered is what is read at once. Every session has a connection, and so a buffer, for as long as it lives: most answers are one line.
	buffered = 4 << 10
)

// block is what one command of a control client printed, between %begin and the %end or %error that has the same time and number.
type block struct {
	// ours is true for commands that this client sent, false for the one that attached it.
	ours   bool
	failed bool
	lines  []string
	// cut is true when it printed more than is kept.
	cut bool
}

// parser reads what a server writes to a control client.
type parser struct {
	r *bufio.Reader
}

func newParser(r io.Reader) *parser { return &parser{r: bufio.NewReaderSize(r, buffered)} }

// next returns the next block, or the next notification (a line outside of any block, beginning with %). Everything between %begin and
// the end with exactly its time, number and flags is what the command printed: a screen can show anything, also "%end".
func (p *parser) next() (b block, notification string, err error) {
	for {
		line, _, err := p.line()
		if err != nil {
			return block{}, "", err
		}
		guard, ok := strings.CutPrefix(line, "%begin ")
		if !ok {
			if strings.HasPrefix(line, "%") {
				return block{}, line, nil
			}
			continue // a failing hook prints outside of any block
		}
		b, err := p.body(guard)
		return b, "", err
	}
}

func (p *parser) body(guard string) (block, error) {
	var b block
	if f := strings.Fields(guard); len(f) == 3 {
		flags, err := strconv.Atoi(f[2])
		b.ours = err == nil && flags&1 != 0
	}
	size := 0
	for {
		line, cut, err := p.line()
		switch {
		case err != nil:
			return block{}, err
		case line == "%end "+guard:
			return b, nil
		case line == "%error "+guard:
			b.failed = true
			return b, nil
		}
		b.cut = b.cut || cut
		if size += len(line) + 16; size > maxBlock {
			b.cut = true
			continue
		}
		b.lines = append(b.lines, line)
	}
}

// line reads one line without its end. What is longer than maxLine is read to its end, and cut.
func (p *parser) line() (line string, cut bool, err error) {
	var b strings.Builder
	for {
		part, err := p.r.ReadSlice('\n')
		if rest := maxLine - b.Len(); len(part) > rest {
			part, cut = part[:rest], true
		}
		b.Write(part)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimSuffix(b.String(), "\n"), cut, err
		}
	}
}
