package tmux

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// askTime is how long a program may take to say its version: it may come from a slow disk.
const askTime = 3 * time.Second

// release is a release of tmux, without the letter of its corrections: nothing here depends on one.
type release struct{ major, minor int }

// oldest is the first release that takes serverConf: an older one would discard all of it for one option that it does not know.
var oldest = release{3, 3}

// before says whether r came out before o.
func (r release) before(o release) bool {
	return r.major < o.major || r.major == o.major && r.minor < o.minor
}

// releaseForm is how tmux names a release, a build on the way to one (next-3.8), and a candidate for one (3.6-rc).
var releaseForm = regexp.MustCompile(`^(?:tmux )?(?:next-)?(\d{1,4})\.(\d{1,4})(?:[a-z]|-rc\d*)?$`)

// parseRelease reads what `tmux -V` prints, or what a server says of itself. known is false for builds with a name of their own.
func parseRelease(text string) (r release, known bool) {
	m := releaseForm.FindStringSubmatch(text)
	if m == nil {
		return release{}, false
	}
	r.major, _ = strconv.Atoi(m[1])
	r.minor, _ = strconv.Atoi(m[2])
	return r, true
}

// Version returns what `tmux -V` prints. A release that is too old is an error.
func (c *Client) Version(ctx context.Context) (string, error) {
	text, err := c.versionOf(ctx, c.bin)
	if r, known := parseRelease(text); err == nil && known && r.before(oldest) {
		return text, fmt.Errorf("%s is %s, which is too old: %d.%d or newer is needed", c.bin, text, oldest.major, oldest.minor)
	}
	return text, err
}

// versionOf asks a program for its version. Nothing but a tmux answers as one.
func (c *Client) versionOf(ctx context.Context, program string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := c.output(ctx, program, "-V")
	if err == nil && !strings.HasPrefix(text, "tmux ") {
		err = errors.New("it is no tmux")
	}
	return text, err
}

// output runs a program and returns what it printed.
func (c *Client) output(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Args[0] = "tmux" // before 3.4, -V says the name that it was called by
	cmd.Env, cmd.Dir = c.env, "/"
	cmd.WaitDelay = askTime
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// program finds the tmux that a target's server understands: the configured one, unless the server runs another file, as it does once
// an upgrade has replaced it. Descriptors are handed over in another way since 3.6, so that a control client from after attaches in
// silence to a server from before, and one from before can end a server of 3.6. The file that a server runs can be run for as long
// as the server lives, whatever became of its name. An error is host.ErrNoAnswer.
func (c *Client) program(ctx context.Context, target string) (string, error) {
	pid, ok := c.listener(target)
	if !ok {
		return c.bin, nil
	}
	ctx = context.WithoutCancel(ctx) // a program does not become another one because its caller is out of time
	own := "/proc/" + strconv.Itoa(pid) + "/exe"
	running, err := os.Stat(own)
	if configured, _ := os.Stat(c.bin); errors.Is(err, fs.ErrNotExist) || err == nil && configured != nil && os.SameFile(running, configured) {
		return c.bin, nil // there is nothing to choose, or the server has just ended
	}
	if err == nil {
		_, err = c.versionOf(ctx, own)
	}
	if err == nil {
		return own, nil
	}
	if c.sameRelease(ctx, target) {
		return c.bin, nil // an emulator runs it, or a script that knows where its libraries are
	}
	name, _ := os.Readlink(own)
	return "", fmt.Errorf("%w: it is another tmux than %s, and its own program (%s, pid %d) cannot be run (%w); "+
		"set tmuxd.tmux to the release that it was started with, until its session has ended", host.ErrNoAnswer, c.bin, printable(name), pid, err)
}

// sameRelease says whether a target's server is of the release that is configured. It asks as no control client does: whoever does not
// understand the question harms nobody.
func (c *Client) sameRelease(ctx context.Context, target string) bool {
	text, err := c.versionOf(ctx, c.bin)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	said, err := c.output(ctx, c.bin, "-N", "-S", c.Socket(target), "display-message", "-p", "tmux #{version}")
	return err == nil && said == text
}

// listener returns the process that listens on a target's socket. ok is false when there is none, or none of ours.
func (c *Client) listener(target string) (pid int, ok bool) {
	conn, err := net.DialTimeout("unix", c.Socket(target), dialTimeout)
	if err != nil {
		return 0, false
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, false
	}
	var peer *unix.Ucred
	rawErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if rawErr != nil || err != nil {
		return 0, false
	}
	// One in a container of its own has no pid here.
	return int(peer.Pid), peer.Pid > 0 && int(peer.Uid) == os.Geteuid()
}
