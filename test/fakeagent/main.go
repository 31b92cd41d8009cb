package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"golang.org/x/term"
)

func main() { os.Exit(run(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr)) }

// run is the program: it returns the exit status. Status 2 is a command line that cannot be meant.
func run(args []string, getenv func(string) string, in, out, errs *os.File) int {
	c, err := configure(args, getenv, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, "fakeagent:", err)
		return 2
	case c.version:
		fmt.Fprintln(out, "fakeagent", version)
		return 0
	case c.task:
		code, err := task(c, in, out)
		if err != nil {
			fmt.Fprintln(errs, "fakeagent:", err)
		}
		return code
	case !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())):
		fmt.Fprintln(errs, "fakeagent: standard input and output must be a terminal; start it in a tmux pane")
		return 1
	}
	signals, stop := catch()
	defer stop()
	code, message, err := start(c, signals, in, out)
	if err != nil {
		fmt.Fprintln(errs, "fakeagent:", err)
		return 1
	}
	if message != "" {
		fmt.Fprintln(out, message)
	}
	return code
}

// start opens the conversation and shows it.
func start(c config, signals <-chan os.Signal, in, out *os.File) (code int, message string, err error) {
	if c.cwd, err = os.Getwd(); err != nil {
		return 1, "", fmt.Errorf("the working directory is not known: %w", err)
	}
	c.newID = uuid.NewString
	if err := c.readPrompt(); err != nil {
		return 1, "", err
	}
	log := &transcript{home: c.home, cwd: c.cwd, now: time.Now}
	defer log.close()
	session, history, err := open(&c, log)
	if err != nil {
		return 1, "", err
	}
	if err := c.forgetPrompt(); err != nil {
		return 1, "", err
	}
	t := &terminal{in: in, out: out, now: time.Now, signals: signals, transcript: log}
	t.model = newModel(c.settings, session, history, t.now())
	t.model.knows(log.deliveries)
	requests, stop, err := listen(c.channel)
	if err != nil {
		return 1, "", err
	}
	defer stop()
	t.requests = requests
	code, message, err = t.run()
	if c.unknown && code == 1 && err == nil {
		err = log.refuse(c.resume)
	}
	return code, message, err
}

// open begins or resumes the conversation. An unknown one is no error yet: the program looks alive for a while first. One
// that is open elsewhere is no error at all: the program stays, and says so in the place of the composer.
func open(c *config, log *transcript) (session string, history []entry, err error) {
	if c.resume != "" {
		history, err = log.resume(c.resume)
		switch {
		case errors.Is(err, errNoSession):
			c.unknown, c.doom = true, "ERROR: No saved session found with ID "+c.resume
			err = nil
		case errors.Is(err, errElsewhere):
			c.locked = true
			err = nil
		}
		return c.resume, history, err
	}
	session = c.sessionID
	if session == "" {
		session = uuid.NewString()
	}
	return session, nil, log.create(session)
}
