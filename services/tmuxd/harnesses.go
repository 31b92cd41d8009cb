package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/internal/settings"
	tmuxdv1 "muxpost.dev/muxpost/proto/gen/muxpost/tmuxd/v1"
	"muxpost.dev/muxpost/services/tmuxd/internal/harness"
)

const (
	// versionTime is how long a program may take to say its version: some need seconds to start on a machine that is busy.
	versionTime = 10 * time.Second
	// versionLength bounds what a program says of itself, in characters, and versionBytes what is read of it.
	versionLength, versionBytes = 60, 4096
)

// harnesses tells of the programs in the table. What a program says of its version is remembered for as long as its file stays as it is.
type harnesses struct {
	table harness.Table
	// dir is where programs are run for their versions, each for patience at most.
	dir      string
	patience time.Duration

	mu    sync.Mutex
	known map[string]said
}

// said is what a program said of its version.
type said struct {
	text string
	// of is the state of its file, by the time of its change: package managers give every release the same times of writing.
	of unix.Timespec
}

func newHarnesses(table harness.Table, dir string) *harnesses {
	return &harnesses{table: table, dir: dir, patience: versionTime, known: map[string]said{}}
}

// infos tells of every entry, by name. With versions, those are asked for that are not known: all at once, within patience.
func (h *harnesses) infos(ctx context.Context, versions bool) []*tmuxdv1.HarnessInfo {
	var out []*tmuxdv1.HarnessInfo
	var wait sync.WaitGroup
	for _, name := range h.table.Names() {
		hn := h.table[name]
		info := &tmuxdv1.HarnessInfo{
			Name: name, Binary: hn.Resolved(), Resumes: hn.Resumes(), RunsSessions: hn.Interactive(), RunsTasks: hn.RunsTasks(), Check: hn.Check,
			TakesPrompt: hn.TakesPrompt(), ConversationSource: conversationOf[hn.ConversationID], Unmeasured: hn.Unmeasured,
			Channel: channelOf[hn.Channel],
		}
		out = append(out, info)
		if hn.Resolved() != "" {
			wait.Go(func() { info.Version, info.VersionProblem = h.version(ctx, hn, versions) })
		}
	}
	wait.Wait()
	return out
}

var channelOf = map[string]tmuxdv1.Channel{
	settings.ChannelPaste:     tmuxdv1.Channel_CHANNEL_PASTE,
	settings.ChannelSocket:    tmuxdv1.Channel_CHANNEL_SOCKET,
	settings.ChannelAppServer: tmuxdv1.Channel_CHANNEL_APP_SERVER,
}

var conversationOf = map[string]tmuxdv1.ConversationSource{
	settings.ConversationNone:     tmuxdv1.ConversationSource_CONVERSATION_SOURCE_NONE,
	settings.ConversationAssigned: tmuxdv1.ConversationSource_CONVERSATION_SOURCE_ASSIGNED,
	settings.ConversationLearned:  tmuxdv1.ConversationSource_CONVERSATION_SOURCE_LEARNED,
}

// version returns what is known of a program's version; with ask it runs the program if nothing is. A failure is not remembered.
func (h *harnesses) version(ctx context.Context, hn *harness.Harness, ask bool) (text, problem string) {
	var file unix.Stat_t
	if err := unix.Stat(hn.Resolved(), &file); err != nil {
		return "", "its program is not there any more"
	}
	h.mu.Lock()
	was, ok := h.known[hn.Name]
	h.mu.Unlock()
	if ok && was.of == file.Ctim {
		return was.text, ""
	}
	if !ask {
		return "", ""
	}
	if text, problem = h.askVersion(ctx, hn); problem == "" {
		h.mu.Lock()
		h.known[hn.Name] = said{text, file.Ctim}
		h.mu.Unlock()
	}
	return text, problem
}

// askVersion runs a program for its version, with an agent's environment and without a terminal, and ends what it started.
func (h *harnesses) askVersion(ctx context.Context, hn *harness.Harness) (text, problem string) {
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	argv := hn.VersionArgv()
	var out head
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout = h.dir, hn.Environ(os.LookupEnv, harness.Vars{Dir: h.dir}), &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child of its may hold the pipe
	err := cmd.Run()
	text = firstLine(out.String())
	switch {
	case ctx.Err() != nil:
		return "", "it did not answer --version in time"
	case err != nil:
		return "", "it does not answer --version: " + err.Error()
	case text == "":
		return "", "it says nothing to --version"
	}
	return text, ""
}

// head keeps the beginning of what is written to it.
type head struct{ bytes.Buffer }

func (w *head) Write(p []byte) (int, error) {
	w.Buffer.Write(p[:min(len(p), max(0, versionBytes-w.Len()))])
	return len(p), nil
}

// firstLine returns the first line that says something, in printable characters.
func firstLine(s string) string {
	for line := range strings.Lines(strings.ToValidUTF8(s, "")) {
		line = strings.TrimSpace(strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return -1
		}, line))
		if runes := []rune(line); len(runes) > 0 {
			return string(runes[:min(len(runes), versionLength)])
		}
	}
	return ""
}
