package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// serveWord makes the test binary a companion.
const serveWord = "serve"

// serveSocket listens on a socket for ever, and answers nothing.
func serveSocket(path string) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	for {
		if conn, err := listener.Accept(); err == nil {
			_ = conn.Close()
		}
	}
}

// accompanied is a rig whose agent has a companion, and the companion's pid once it runs. Both are started by a shell.
func accompanied(t *testing.T) (r *rig, companion int) {
	t.Helper()
	r = newRig(t, nil)
	r.entry.Channel = settings.ChannelSocket
	r.entry.Companion = []string{"-c", `exec "$0" ` + serveWord + ` "$1"`, os.Args[0], "{socket}"}
	delete(r.entry.Env, "FAKEAGENT_CHANNEL") // its companion serves
	r.entry.ChannelResume = append([]string{"-c", `exec "$0" "$@"`, r.entry.Binary}, r.entry.Resume...)
	r.shelled()
	r.started("", "")
	r.ready()
	wrapper := strconv.Itoa(r.state().Incarnation.PanePid)
	children, err := os.ReadFile("/proc/" + wrapper + "/task/" + wrapper + "/children")
	if err != nil {
		t.Fatal(err)
	}
	companion, err = strconv.Atoi(strings.Fields(string(children))[0]) // it is started first
	if err != nil {
		t.Fatal(err)
	}
	if line, err := os.ReadFile("/proc/" + strconv.Itoa(companion) + "/cmdline"); err != nil || !strings.Contains(string(line), serveWord+"\x00"+r.sockets()[0]) {
		t.Fatalf("the companion is %q, %v; sockets: %v", line, err, r.sockets())
	}
	return r, companion
}

func TestCompanion_EndsWithItsSession(t *testing.T) {
	t.Parallel()
	r, companion := accompanied(t)
	res, err := r.Terminate(r.ctx(), host.TerminateRequest{Item: r.item, Stamp: r.state().Incarnation.Stamp, Token: r.token()})
	if err != nil {
		t.Fatalf("%+v, %v", res, err)
	}
	r.becomes(session.Dead)
	r.until("the companion is gone", func() bool { return syscall.Kill(companion, 0) != nil })
}

func TestCompanion_ASessionEndsWithItAndComesBack(t *testing.T) {
	t.Parallel()
	r, companion := accompanied(t)
	conversation := r.state().Conversation
	r.signal(companion, syscall.SIGKILL)
	r.becomes(session.Dead)
	res, err := r.Spawn(r.ctx(), host.SpawnRequest{Item: r.item, Harness: "fakeagent", Resume: conversation, Token: r.token()})
	if err != nil || res.Outcome != host.SpawnStarted {
		t.Fatalf("%+v, %v", res, err)
	}
}

func TestCompanion_OneThatCannotServeIsToldWithARemedy(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.entry.Channel = settings.ChannelSocket
	r.entry.Companion = []string{"-c", "echo unknown option --listen >&2; exit 2", "{socket}"}
	r.shelled()
	res := r.spawn("", "")
	if res.Outcome != host.SpawnNotStarted || !strings.Contains(res.Detail, "unknown option --listen") ||
		!strings.Contains(res.Detail, "set tmuxd.harnesses.fakeagent.channel to paste") {
		t.Errorf("%+v", res)
	}
}
