package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muxpost.dev/muxpost/internal/wrapper"
)

// oomStep is by how much rather the kernel takes the harness than its wrapper when memory runs out.
const oomStep = 100

// start writes the prompt, starts the harness as the terminal's foreground process group, and records that. code is the wrapper's exit
// code when it fails.
func (r *runner) start() (code int, err error) {
	spec := r.spec
	if err := prompt(spec); err != nil {
		return exitCannotRun, err
	}
	stdin := os.Stdin
	if spec.Stdin != "" {
		if stdin, err = os.Open(spec.Stdin); err != nil {
			return exitCannotRun, fmt.Errorf("cannot read what is to be its input: %w", err)
		}
		defer stdin.Close()
	}
	path, err := lookPath(spec.Argv[0], spec.Env)
	if err != nil {
		return exitNotFound, err
	}
	if code, err := r.accompany(); err != nil {
		return code, err
	}
	// tmux leaves these two ignored in a pane. A signal that we take is the harness's own again: it stops, instead of reading an error, when
	// somebody took its terminal, and we give it back.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU, syscall.SIGTTIN)
	attr := &os.ProcAttr{
		Dir: spec.Dir, Env: environment(spec), Files: []*os.File{stdin, os.Stdout, os.Stderr},
		Sys: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if isTerminal(0) {
		attr.Sys.Foreground, attr.Sys.Ctty = true, 0
	}
	pid, err := r.exec(path, spec.Argv, attr)
	if err != nil {
		return exitOf(err), err
	}
	// Nothing else is started from here on, so nobody inherits this: without it we could not give the terminal back.
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTTIN)
	child, _ := wrapper.Find(pid)
	err = r.update(func(rec *wrapper.Record) {
		rec.State, rec.StartedAt, rec.Child = wrapper.Running, time.Now(), child
		r.child = pid
	})
	if err != nil {
		complain("cannot write the record", err)
	}
	return 0, nil
}

// exitOf is the wrapper's exit code where a program could not be started.
func exitOf(err error) int {
	if errors.Is(err, os.ErrNotExist) {
		return exitNotFound
	}
	return exitCannotRun
}

// exec starts a program in the control group, if that lets it in.
func (r *runner) exec(path string, argv []string, attr *os.ProcAttr) (pid int, err error) {
	defer raiseOOM()()
	defer func() { r.began = r.began || err == nil }()
	if group := r.now().Group; group != "" {
		dir, err := os.Open(string(group))
		if err == nil {
			defer dir.Close()
			attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
			if pid, err = startProcess(path, argv, attr); err == nil {
				return pid, nil
			}
		}
		// With the companion in it, it lets us in: it failed for something else, and what is in it must still be found by it.
		if populated, _ := group.Populated(); populated {
			return 0, err
		}
		// It failed for that, or fails again: a group may be ours to make and not to enter.
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = false, 0
		_ = group.Remove()
		if err := r.update(func(rec *wrapper.Record) { rec.Group = "" }); err != nil {
			return 0, fmt.Errorf("cannot write the record: %w", err)
		}
	}
	return startProcess(path, argv, attr)
}

// startProcess starts a process and leaves its end to us.
func startProcess(path string, argv []string, attr *os.ProcAttr) (pid int, err error) {
	p, err := os.StartProcess(path, argv, attr)
	if err != nil {
		return 0, err
	}
	pid = p.Pid // Release forgets it
	return pid, p.Release()
}

// environment is the harness's: the spec's, with the stamp by which tmuxd finds what outlives us.
func environment(spec wrapper.Spec) []string {
	env := []string{wrapper.StampVariable + "=" + spec.Stamp}
	for _, kv := range spec.Env {
		if !strings.HasPrefix(kv, wrapper.StampVariable+"=") {
			env = append(env, kv)
		}
	}
	return env
}

// prompt writes the prompt where the harness will read it, or makes sure that it lies there.
func prompt(spec wrapper.Spec) error {
	switch {
	case spec.PromptFile == "":
		return nil
	case spec.Prompt != "":
		if err := writePrompt(spec.PromptFile, spec.Prompt); err != nil {
			return fmt.Errorf("cannot write the prompt: %w", err)
		}
		return nil
	}
	f, err := os.Open(spec.PromptFile)
	if err != nil {
		return fmt.Errorf("cannot read the prompt: %w", err)
	}
	return f.Close()
}

func writePrompt(path, text string) error {
	// O_EXCL: whatever lies under this name is not ours to write into.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// lookPath finds the program on the PATH of the environment that it will get, not on ours.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range env {
		list, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for dir := range strings.SplitSeq(list, ":") {
			path := dir + "/" + name
			if info, err := os.Stat(path); dir != "" && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not on the PATH of the agent's environment", name)
}

// becomeSubreaper makes what the harness leaves behind our children, so that it can be found and ended.
func becomeSubreaper() error {
	const prSetChildSubreaper = 36
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return errno
	}
	return nil
}

// raiseOOM has what is started before the returned function is called be taken rather than us when memory runs out. Anybody may raise
// their own score and take that back; nobody but root may lower it further, so it is the harness that is moved. Where it cannot be done,
// nothing depends on it.
func raiseOOM() (restore func()) {
	const file = "/proc/self/oom_score_adj"
	data, err := os.ReadFile(file)
	score, convErr := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || convErr != nil {
		return func() {}
	}
	_ = os.WriteFile(file, []byte(strconv.Itoa(min(score+oomStep, 1000))), 0)
	return func() { _ = os.WriteFile(file, data, 0) }
}
