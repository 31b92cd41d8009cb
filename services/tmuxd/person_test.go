package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"muxpost.dev/muxpost/services/tmuxd/internal/host"
)

// attach lets a person in: a tmux client in a terminal of its own, whose keyboard is returned.
func (r *rig) attach(flags ...string) *os.File {
	r.t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(keyboard.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	args := append([]string{"-N", "-S", r.tmux.Socket(r.item.Target()), "attach-session", "-t", "=" + r.item.Target() + ":"}, flags...)
	cmd := exec.Command("tmux", args...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	terminal.Close()
	go func() { // what a person would see
		buffer := make([]byte, 4096)
		for {
			if _, err := keyboard.Read(buffer); err != nil {
				return
			}
		}
	}()
	r.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		keyboard.Close()
	})
	r.until("the person is attached", func() bool {
		out, err := r.cmd("list-clients", "-F", "#{client_pid}")
		return err == nil && strings.Contains(out, fmt.Sprint(cmd.Process.Pid))
	})
	return keyboard
}

func TestPaste_APersonWhoTypesIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	keyboard := r.attach()
	// A key that leaves no trace in the composer.
	r.until("the delivery is held for the person", func() bool {
		if _, err := keyboard.WriteString("x\x7f"); err != nil {
			t.Fatal(err)
		}
		got := r.paste(d1, "hello")
		if got.Verdict == host.Submitted {
			t.Fatal("typed into a terminal in which somebody types")
		}
		return got.Verdict == host.Held && got.Cause == host.HeldPerson
	})
	r.until("it goes in once the person is at rest", func() bool { return r.goesIn(d1, "hello") })
	r.took(res.Conversation, typed(d1, "hello"))
}

func TestPaste_APersonWhoOnlyWatchesHoldsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	res := r.started("", "")
	r.ready()
	keyboard := r.attach("-r")
	if _, err := keyboard.WriteString("xyz\r"); err != nil {
		t.Fatal(err)
	}
	if got := r.paste(d1, "hello"); got.Verdict != host.Submitted {
		t.Fatalf("%+v\n%s", got, r.screen())
	}
	r.took(res.Conversation, typed(d1, "hello"))
}
