package tmux

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// removal names the rig's session as it stands.
func (r *rig) removal() host.Removal {
	return host.Removal{Stamp: stamp, Generation: "g1"}
}

// dead is removal for what was seen dead.
func (r *rig) dead() host.Removal {
	m := r.removal()
	m.Dead = true
	return m
}

func TestRemove_ChecksInsideTheServerWhatIsRemoved(t *testing.T) {
	r := newRig(t, "sleep 300")
	// Another session, whose name begins with ours: nothing of ours may hit it.
	if out, err := exec.Command("tmux", "-N", "-S", r.Socket(target), "new-session", "-d", "-s", target+"-2", "sleep 300").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	byID := host.Removal{SessionID: r.made.SessionID, Server: r.made.Server, Generation: "g1"}
	for name, change := range map[string]func(*host.Removal){
		"another incarnation":        func(m *host.Removal) { m.Stamp = "stamp0002" },
		"an act of before":           func(m *host.Removal) { m.Generation = "g0" },
		"no generation":              func(m *host.Removal) { m.Generation = "" },
		"only if dead":               func(m *host.Removal) { m.Dead = true },
		"another session, by its id": func(m *host.Removal) { *m = byID; m.SessionID = "$7" },
		"no id":                      func(m *host.Removal) { *m = byID; m.SessionID = "" },
		"another server":             func(m *host.Removal) { *m = byID; m.Server.Pid++ },
		"a server of another time":   func(m *host.Removal) { *m = byID; m.Server.Started = m.Server.Started.Add(1e9) },
	} {
		m := r.removal()
		change(&m)
		if done, err := r.Remove(r.ctx(), target, m); done || err != nil {
			t.Errorf("%s: %v, %v", name, done, err)
		}
	}
	if done, err := r.Remove(r.ctx(), target+"x", r.removal()); done || err == nil {
		t.Errorf("a server that is not there: %v, %v", done, err)
	}
	if v := r.view(); len(v.Sessions) != 2 {
		t.Fatalf("%v", v.Sessions)
	}
	if done, err := r.Remove(r.ctx(), target, byID); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	if v := r.view(); len(v.Sessions) != 1 || v.Sessions[0] != target+"-2" {
		t.Errorf("%v", v.Sessions)
	}
	// The name is absent now, and the beginning of another one.
	if done, err := r.Remove(r.ctx(), target, r.removal()); done || err != nil {
		t.Errorf("absent: %v, %v", done, err)
	}
	if v := r.view(); len(v.Sessions) != 1 {
		t.Errorf("%v", v.Sessions)
	}
}

func TestRemove_OfTheDeadThatNobodyLooksAt(t *testing.T) {
	r := newRig(t, "exit 7")
	m := r.removal()
	m.Dead, m.Unattached = true, true
	r.until("it is dead", func() bool {
		v := r.view() // over our own client, which is attached and looks at nothing
		r.Nudge(v.Server)
		return v.Panes[0].Dead
	})
	if done, err := r.Remove(r.ctx(), target, m); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	r.until("the server is gone", func() bool { return r.Dial(target) == session.NoServer })
	r.Unlink(target)
	if _, err := os.Lstat(r.Socket(target)); err == nil {
		t.Error("its socket is left")
	}
}

func TestRemove_NotWhileATerminalIsAttached(t *testing.T) {
	r := newRig(t, "exit 7")
	m := r.removal()
	m.Dead, m.Unattached = true, true
	r.until("it is dead", func() bool {
		v := r.view()
		r.Nudge(v.Server)
		return v.Panes[0].Dead
	})
	// A person's terminal: a pane of another server, in which a client of this one runs.
	dir, err := os.MkdirTemp("", "mux")
	if err != nil {
		t.Fatal(err)
	}
	theirs := dir + "/s"
	t.Cleanup(func() {
		_ = exec.Command("tmux", "-N", "-S", theirs, "kill-server").Run()
		os.RemoveAll(dir)
	})
	if out, err := exec.Command("tmux", "-S", theirs, "-f", "/dev/null", "new-session", "-d", "env", "-u", "TMUX", "tmux", "-N", "-S",
		r.Socket(target), "attach-session", "-t", "="+target+":").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.until("it is attached", func() bool {
		out, _ := exec.Command("tmux", "-N", "-S", r.Socket(target), "list-clients", "-F", "#{client_name}").CombinedOutput()
		return strings.Contains(string(out), "/dev/")
	})
	if done, err := r.Remove(r.ctx(), target, m); done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
	m.Unattached = false
	if done, err := r.Remove(r.ctx(), target, m); !done || err != nil {
		t.Errorf("%v, %v", done, err)
	}
}

func TestUnlink_NeverTakesTheAddressOfALivingServer(t *testing.T) {
	r := newRig(t, "sleep 300")
	r.Unlink(target)
	if r.Dial(target) != session.Answered {
		t.Error("it lost its address")
	}
}
