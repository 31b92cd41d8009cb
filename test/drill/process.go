package drill

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopTime is how long a process may take to end as an operator would end it.
const stopTime = 20 * time.Second

// statusUnavailable is what a program of ours ends with when something that it needs does not answer.
const statusUnavailable = 3

// process is one of the product's programs, which can be killed and comes back.
type process struct {
	name string
	// program is its name in a directory of programs, args what follows it, and within what runs it on its host.
	program string
	args    []string
	within  []string
	env     []string
	log     string
	// crashed is told when it ends by itself.
	crashed func(what string)

	mu   sync.Mutex
	bin  string
	cmd  *exec.Cmd
	done chan struct{}
	// ending is true while its end is our doing.
	ending bool
	// ends is how often it has ended: one that does not get up is not started all the time.
	ends int
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return nil
	}
	argv := append(append(append([]string{}, p.within...), filepath.Join(p.bin, p.program)), p.args...)
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // it is ended by its pid
	cmd.Env, cmd.Stderr, cmd.Stdout = append(os.Environ(), p.env...), log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s does not start: %w", p.name, err)
	}
	p.cmd, p.done, p.ending = cmd, make(chan struct{}), false
	go p.wait(cmd, p.done)
	return nil
}

// wait notices the end. One that ended by itself is started again, as a service manager would.
func (p *process) wait(cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	p.mu.Lock()
	p.cmd = nil
	unasked := !p.ending
	p.ends++
	wait := time.Duration(min(p.ends, 30)) * time.Second
	p.mu.Unlock()
	close(done)
	if unasked {
		// A start that found the database away ends with a status of its own, and is tried again.
		if cmd.ProcessState.ExitCode() != statusUnavailable {
			p.crashed(fmt.Sprintf("%s ended by itself: %v (%s)", p.name, err, p.log))
		}
		time.Sleep(wait)
		_ = p.start()
	}
}

// end signals it and waits until it is gone; after stopTime it is killed.
func (p *process) end(s syscall.Signal) {
	p.mu.Lock()
	if p.cmd == nil {
		p.mu.Unlock()
		return
	}
	p.ending = true
	cmd, done := p.cmd, p.done
	_ = cmd.Process.Signal(s)
	p.mu.Unlock()
	select {
	case <-done:
	case <-time.After(stopTime):
		_ = cmd.Process.Kill()
		<-done
	}
}

// kill ends it without a warning; start brings it back.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// replace ends it as an operator would, and starts it from another directory of programs.
func (p *process) replace(bin string) error {
	p.signal(syscall.SIGCONT)
	p.end(syscall.SIGTERM)
	p.mu.Lock()
	p.bin = bin
	p.mu.Unlock()
	return p.start()
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(s)
	}
}
