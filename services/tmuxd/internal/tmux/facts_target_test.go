package tmux

import (
	"slices"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// Facts 5 and L19 to L22, R42, R43: what looks exact hits the next longer name; only =name: is exact everywhere.
func TestFact_ANameReachesASessionWithALongerOne(t *testing.T) {
	r := newRig(t, "sleep 300")
	s := r.raw()
	s.must("rename-session", "-t", "="+target+":", target+"0")
	r.view()
	client := s.must("list-clients", "-F", "#{client_name}")
	for _, args := range [][]string{
		{"has-session", "-t", target}, {"send-keys", "-t", target, "x"}, // by a prefix
		{"has-session", "-t", "loop-*-70"},         // by a pattern
		{"list-panes", "-t", "=" + target},         // = does not hold for windows
		{"has-session", "-t", "=" + target + ".0"}, // nor with a pane
		{"has-session", "-t", "=" + client},        // a client's name is tried as well
	} {
		if out, status := s.run(args...); status != 0 {
			t.Errorf("%q hits nothing: %s", args, out)
		}
	}
	if _, status := s.run("capture-pane", "-p", "-t", "="+target+"0"); status == 0 {
		t.Error("without a colon = names no pane, and here it did")
	}
	for _, command := range []string{"has-session", "list-panes", "send-keys", "capture-pane", "kill-session"} {
		if _, status := s.run(command, "-t", "="+target+":"); status == 0 {
			t.Errorf("%s -t =%s: hit another session", command, target)
		}
	}
	if v := r.view(); !slices.Equal(v.Sessions, []string{target + "0"}) {
		t.Errorf("ours: %v", v.Sessions)
	}
	if workitem.ValidTarget(client) {
		t.Error("ours: a client's name may be a target")
	}
	s.must("kill-session", "-t", target)
	r.until("the other session is killed", func() bool { return r.Dial(target) == session.NoServer })
}

// L24, R44: two items became one session, or one that nobody can name.
func TestFact_ANameIsNotStoredAsItWasGiven(t *testing.T) {
	s := newRaw(t, "")
	s.must("new-session", "-d", "-s", "foo.js:1", "sleep", "300")
	switch out, status := s.run("has-session", "-t", "=foo.js:1"); {
	case since(t, 3, 7) && status == 0:
		t.Errorf("it can be named: %s", out)
	case !since(t, 3, 7):
		if out, status := s.run("new-session", "-d", "-s", "foo_js_1", "sleep", "300"); status == 0 {
			t.Errorf("another item has a session of its own: %s", out)
		}
	}
	targets := map[string]bool{}
	for _, item := range []string{"github:octo/foo.js#1", "github:octo/foo_js#1", "github:octo/foo-js#1"} {
		ref, err := workitem.Parse(item)
		if err != nil {
			t.Fatal(err)
		}
		name := ref.Target()
		targets[name] = true
		s.must("new-session", "-d", "-s", name, "sleep", "300")
		s.must("has-session", "-t", "="+name+":")
		if !workitem.ValidTarget(name) {
			t.Errorf("ours: %s", name)
		}
	}
	if len(targets) != 3 {
		t.Errorf("ours: %v", targets)
	}
}

// Section 2: a condition about what is not there compares with nothing, and nothing equals nothing; where a client is attached, with that
// client's own session.
func TestFact_AGuardOfWhatIsAbsentHoldsAllTheSame(t *testing.T) {
	asked := func(s raw, condition string) string {
		return s.must("if-shell", "-F", "-t", "=nosuch:", condition, "display-message -p HOLDS", "display-message -p FAILS")
	}
	s := newRaw(t, "")
	if out := asked(s, "#{==:#{"+optStamp+"},}"); out != "HOLDS" {
		t.Errorf("compared with nothing it says %s", out)
	}
	if out := asked(s, equal(optStamp, "")); out != "FAILS" {
		t.Errorf("ours says %s", out)
	}
	r := reading(t)
	if out := asked(r.raw(), equal(optStamp, stamp)); out != "HOLDS" {
		t.Errorf("with a client in the agent's session it says %s", out)
	}
	absent := r.guard
	absent.Pane, absent.Session = "%99", "$99"
	for name, g := range map[string]host.Guard{"absent": absent, "of nobody": {NotAfter: r.guard.NotAfter}} {
		if ruling := r.oursAt(g, r.seen(), "x"); ruling != host.NotIncarnation {
			t.Errorf("ours, %s: %v", name, ruling)
		}
	}
	if strings.Contains(r.screen(), "ready x") {
		t.Error("ours: it was typed")
	}
}

// Section 2, L31, R30: a session's name is whatever pane a person selected; a command inside a guard does not keep its target either.
func TestFact_ASessionsNameIsThePaneThatAPersonSelected(t *testing.T) {
	r := reading(t)
	s := r.raw()
	s.must("split-window", "-t", "%0", reader)
	s.waitFor("%1", "ready")
	s.paste("="+target+":", "ASTRAY")
	s.waitFor("%1", "ready ASTRAY")
	s.must("if-shell", "-F", "-t", "%0", "1", "send-keys -l GUARDED")
	s.waitFor("%1", "ready ASTRAYGUARDED")
	if ruling := r.ours("ours"); ruling != host.Done {
		t.Fatalf("ours: %v", ruling)
	}
	s.waitFor("%0", "ready ours")
	if s.shows("%1", "ours") {
		t.Error("ours went astray")
	}
}

// Section 9: respawn-pane keeps the pane's id and what the session says of itself; ids begin anew with every server.
func TestFact_APaneIdAndAStampDoNotNameAnAgent(t *testing.T) {
	r := newRig(t, "sleep 300")
	s := r.raw()
	look := host.Look{Cursor: host.Cursor{X: len("ready ")}}
	s.must("respawn-pane", "-k", "-t", "%0", reader)
	s.waitFor("%0", "ready")
	stamped := "#{&&:#{==:#{" + optStamp + "}," + stamp + "},#{==:#{pane_dead},0}}"
	if out := s.must("if-shell", "-F", "-t", "%0", stamped, "display-message -p HOLDS", "display-message -p FAILS"); out != "HOLDS" {
		t.Errorf("after a person's respawn-pane the guard says %s", out)
	}
	if ruling := r.oursAt(r.guard, look, "x"); ruling != host.NotIncarnation || s.shows("%0", "ready x") {
		t.Errorf("ours: %v", ruling)
	}

	s.must("kill-server")
	r.conn().end(errLost)
	r.until("the server is gone", func() bool { return r.Dial(target) == session.NoServer })
	s.must("-f", "/dev/null", "new-session", "-d", "-s", "another", reader)
	s.endLater()
	s.waitFor("%0", "ready")
	if status := s.paste("%0", "ASTRAY"); status != 0 {
		t.Errorf("a paste into the same id on another server: %d", status)
	}
	s.waitFor("%0", "ready ASTRAY")
	look.Cursor.X += len("ASTRAY")
	if ruling := r.oursAt(r.guard, look, "x"); ruling != host.NotIncarnation || s.shows("%0", "ASTRAYx") {
		t.Errorf("ours: %v", ruling)
	}
}

// Section 9: an option that is global gives way to one that anybody sets on a session; only a server option cannot be shadowed.
func TestFact_AGlobalOptionIsShadowedByTheSessions(t *testing.T) {
	r := reading(t)
	s := r.raw()
	s.must("set-option", "-g", "@gen", "g1")
	s.must("set-option", "-t", "="+target+":", "@gen", "g0")
	if out := s.must("display-message", "-p", "-t", "="+target+":", "#{@gen}"); out != "g0" {
		t.Errorf("it is %s", out)
	}
	s.must("set-option", "-t", "="+target+":", optGeneration, "g0")
	s.must("set-option", "-p", "-t", "%0", optGeneration, "g0")
	if ruling := r.ours("x"); ruling != host.Done {
		t.Errorf("ours: %v", ruling)
	}
}
