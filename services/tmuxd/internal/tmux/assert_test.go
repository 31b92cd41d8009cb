package tmux

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// A session is made on a server that is as we rely on it, or it is not there.
func TestCreate_OnAServerThatIsNotAsAskedIsTakenBack(t *testing.T) {
	t.Parallel()
	for why, row := range map[string]struct {
		conf  string
		wrong []string
	}{
		"it stays without sessions": {strings.Replace(serverConf, "exit-empty on", "exit-empty off", 1), []string{"exit-empty is off and not on"}},
		"it has no clock":           {strings.Replace(serverConf, "@mux_now '%s'", "@mux_now 'noon'", 1), []string{"@mux_now is noon and not the time"}},
		"the pane is in a mode":     {serverConf + "set-hook -g after-new-session copy-mode\n", []string{"pane_in_mode is on and not off"}},
		// It discards all lines, and some releases show why in the next pane.
		"a line cannot be read": {serverConf + "}\n", []string{"@mux_now is not set and not the time"}},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, reader)
			r.away()
			if err := os.WriteFile(r.conf, []byte(row.conf), 0o600); err != nil {
				t.Fatal(err)
			}
			made, err := r.Create(r.ctx(), r.session(reader))
			if err == nil || errors.Is(err, host.ErrNoAnswer) || errors.Is(err, host.ErrDuplicate) {
				t.Fatalf("%+v, %v", made, err)
			}
			for _, wrong := range row.wrong {
				if !strings.Contains(err.Error(), wrong) {
					t.Errorf("%q is not in: %v", wrong, err)
				}
			}
			if others := strings.Count(err.Error(), " and not ") - len(row.wrong); others > 0 && why != "a line cannot be read" {
				t.Errorf("more than that: %v", err)
			}
			out, err := exec.Command("tmux", "-N", "-S", r.Socket(target), "display-message", "-p", "#{pid} #{session_name}").Output()
			pid, name, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
			if name != "" {
				t.Errorf("it is still there: %q", out)
			}
			// The server ends with the session, unless that is what is wrong.
			if n, _ := strconv.Atoi(pid); err == nil && n > 0 && strings.Contains(row.conf, "exit-empty off") {
				_ = syscall.Kill(n, syscall.SIGTERM)
			}
			r.until("its server has ended", func() bool { return r.Dial(target) == session.NoServer })
			if err := os.WriteFile(r.conf, []byte(serverConf), 0o600); err != nil {
				t.Fatal(err)
			}
			if r.made, err = r.Create(r.ctx(), r.session(reader)); err != nil {
				t.Errorf("as asked: %v", err)
			}
		})
	}
}

// away ends the server that the rig began with.
func (r *rig) away() {
	r.t.Helper()
	if err := syscall.Kill(r.made.Server.Pid, syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	r.until("the server has ended", func() bool { return r.Dial(target) == session.NoServer })
	r.made = host.Created{}
}
