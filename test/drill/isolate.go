package drill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// stageVariable says which of three processes this one is: the one that a person started, the first of the namespaces, or the drill itself.
const stageVariable = "MUXPOST_DRILL_STAGE"

const (
	stageInit   = "init"
	stageInside = "inside"
	// statusDenied is what the first process of the namespaces ends with when it cannot set them up.
	statusDenied = 97
)

// ErrDenied is why hosts cannot be namespaces here.
var ErrDenied = errors.New("namespaces cannot be made here")

// Isolated reports whether this process is inside the namespaces that Isolate makes.
func Isolated() bool { return os.Getenv(stageVariable) == stageInside }

// Isolate runs this program once more in namespaces of its own: for processes, so that nothing outlives the drill; for mounts, so that a disk
// can be full; and for the network, so that hosts can be apart. It returns the status with which that ended, or ErrDenied. Called in the first
// process of those namespaces it does not return.
func Isolate() (status int, err error) {
	if os.Getenv(stageVariable) == stageInit {
		os.Exit(initialise())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // it is told to end by a signal
	cmd.Env = append(os.Environ(), stageVariable+"="+stageInit)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDenied, err)
	}
	// The terminal's signals reach all of them anyway, and are left to the drill.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status == statusDenied {
		return 0, ErrDenied
	} else if status >= 0 {
		return status, nil
	}
	return 0, fmt.Errorf("the drill was ended: %w", err)
}

// initialise is the first process: it sets the namespaces up, starts the drill, and buries whoever ends there, until the drill does.
func initialise() int {
	for _, needed := range []string{"ip", "nsenter", "iptables-restore"} {
		if _, err := exec.LookPath(needed); err != nil {
			fmt.Fprintln(os.Stderr, "drill:", err)
			return statusDenied
		}
	}
	if err := errors.Join(
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount("proc", "/proc", "proc", 0, ""),
		command("ip", "link", "set", "lo", "up"),
	); err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		return statusDenied
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if err := os.Setenv(stageVariable, stageInside); err != nil {
		return statusDenied
	}
	self, err := os.Executable()
	if err != nil {
		return statusDenied
	}
	drill, err := syscall.ForkExec(self, os.Args, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill: fork:", err)
		return statusDenied
	}
	go func() {
		for s := range signals {
			_ = syscall.Kill(drill, s.(syscall.Signal))
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1
		case pid == drill && status.Exited():
			return status.ExitStatus()
		case pid == drill:
			return 128 + int(status.Signal())
		}
	}
}

// command runs a program to its end.
func command(argv ...string) error {
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil { //nolint:noctx // a moment
		return fmt.Errorf("%v: %w: %s", argv, err, out)
	}
	return nil
}
