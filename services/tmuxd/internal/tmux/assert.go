package tmux

import (
	"fmt"
	"strings"
)

// tagBad begins the line that says how a server is that is not as it was asked to be.
const tagBad = "BAD"

// aTime is wanted of what is to be a time in seconds.
const aTime = "the time"

// relied is what we rely on in a server, and in the agent's pane. A line that cannot be read, in a configuration that somebody changed, leaves
// all of it at tmux's defaults, and the pane in a mode that swallows what is typed; a server that was there before may have been set by anybody.
var relied = []struct {
	// name and want are for a person; value and holds are formats.
	name, want, value, holds string
}{
	{"exit-empty", "on", "#{exit-empty}", isOn("exit-empty")},
	{"exit-unattached", "off", "#{exit-unattached}", isOff("exit-unattached")},
	{"destroy-unattached", "off", "#{destroy-unattached}", isOff("destroy-unattached")},
	{"remain-on-exit", "on", "#{remain-on-exit}", isOn("remain-on-exit")},
	{"@mux_now", aTime, "#{T:@mux_now}", "#{e|<:0,#{T:@mux_now}}"},
	{"pane_in_mode", "off", "#{pane_in_mode}", isOff("pane_in_mode")},
}

// isOn is the condition that an option is on: some releases write that as a number, and so do they for what is a flag.
func isOn(name string) string { return "#{||:" + equal(name, "on") + "," + equal(name, "1") + "}" }

func isOff(name string) string { return "#{||:" + equal(name, "off") + "," + equal(name, "0") + "}" }

// asserted is the end of the list that makes a session: it says that all is as we rely on it, or how it is and takes the session back.
// Nobody else can be in there yet: the server does nothing else before the list is over.
func asserted(target, nonce string) []string {
	t := "=" + target + ":"
	conditions, values := make([]string, len(relied)), make([]string, len(relied))
	for i, r := range relied {
		conditions[i], values[i] = r.holds, r.value
	}
	return []string{"if-shell", "-F", "-t", t, all(conditions...), "display-message -p 'END|" + nonce + "'",
		"display-message -p -t '" + t + "' '" + tagBad + "|" + nonce + "|" + strings.Join(values, "|") + "' ; kill-session -t '" + t + "'"}
}

// unlike is the error for a server that is not as we rely on it: values are those of relied.
func unlike(values []string) error {
	words := map[string]string{"0": "off", "1": "on", "": "not set"}
	var out []string
	for i := range min(len(relied), len(values)) {
		r := relied[i]
		is, ok := words[values[i]]
		if !ok {
			is = printable(values[i])
		}
		if is != r.want && (r.want != aTime || is == "not set" || strings.Trim(is, "0123456789") != "") {
			out = append(out, fmt.Sprintf("%s is %s and not %s", r.name, is, r.want))
		}
	}
	return fmt.Errorf("the tmux server is not as it has to be, so the session was taken back: %s (if somebody changed tmux.conf beside its socket, "+
		"restart tmuxd, which writes it anew; if it is a server of somebody's own, set it back or end it)", strings.Join(out, ", "))
}
