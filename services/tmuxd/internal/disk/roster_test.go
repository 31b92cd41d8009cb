package disk

import (
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muxpost.dev/muxpost/internal/wrapper"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

func TestTargets_ListsWhatIsRemembered(t *testing.T) {
	d := open(t)
	if got, err := d.Targets(); err != nil || len(got) != 0 {
		t.Fatalf("%v %v", got, err)
	}
	for _, name := range []string{"loop-b", "loop-a"} {
		if err := d.Remember(host.Memory{Target: name}); err != nil {
			t.Fatal(err)
		}
	}
	// What a crash left behind while it was written.
	if err := os.WriteFile(d.path("sessions", ".loop-c.json.123"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.path("sessions", ".loop-c.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := d.Targets()
	if diff := cmp.Diff([]string{"loop-a", "loop-b"}, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

func TestLives_NamesTheProcessesThatLive(t *testing.T) {
	d := open(t)
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := wrapper.Find(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	m := host.Memory{Target: target, Stamp: "s1", Server: host.Server{Pid: p.Pid}}
	lives := func(want, wantAgent host.Life) {
		t.Helper()
		server, agent, err := d.Lives(m)
		if err != nil || server != want || agent != wantAgent {
			t.Errorf("%+v %+v %v", server, agent, err)
		}
	}
	it, none := host.Life{Pid: p.Pid, Start: p.Start}, host.Life{}
	lives(it, none) // no record yet; and the server's start was not written down
	if err := wrapper.WriteRecord(d.record(target, "s1"), wrapper.Record{Stamp: "s1", State: wrapper.Running, Wrapper: p}); err != nil {
		t.Fatal(err)
	}
	lives(it, it)
	m.ServerStart, m.Boot = p.Start, "another boot"
	lives(none, it)
	m.ServerStart, m.Boot = p.Start+1, p.Boot
	lives(none, it) // the pid is another's now
	m.Server.Pid = 0
	lives(none, it)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	m.Server.Pid, m.ServerStart = p.Pid, p.Start
	lives(none, none)
	if err := os.WriteFile(d.record(target, "s1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Lives(m); err == nil {
		t.Error("half a record is read")
	}
}
