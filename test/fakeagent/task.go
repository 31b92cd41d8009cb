package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
)

// task is the program as it does one task and ends: it reads the prompt from its standard input to the end, records it, follows the words in
// it that begin with zz:, says that it is done, and exits.
func task(c config, in io.Reader, out io.Writer) (code int, err error) {
	prompt, err := io.ReadAll(in)
	if err != nil {
		return 1, fmt.Errorf("the prompt cannot be read: %w", err)
	}
	if c.cwd, err = os.Getwd(); err != nil {
		return 1, fmt.Errorf("the working directory is not known: %w", err)
	}
	log := &transcript{home: c.home, cwd: c.cwd, now: time.Now}
	defer log.close()
	if err := log.create(cmp.Or(c.sessionID, uuid.NewString())); err != nil {
		return 1, err
	}
	if err := log.append(line{Type: "user", Text: string(prompt)}); err != nil {
		return 1, err
	}
	for word := range strings.FieldsSeq(string(prompt)) {
		directive, ok := strings.CutPrefix(word, "zz:")
		if !ok {
			continue
		}
		name, value, _ := strings.Cut(directive, "=")
		switch name {
		case "dur":
			if d, err := time.ParseDuration(value); err == nil {
				time.Sleep(d)
			}
		case "exit":
			code, _ = strconv.Atoi(value)
		case "print":
			n, _ := strconv.Atoi(value)
			for i := range n {
				fmt.Fprintf(out, "\x1b[32mline %d\x1b[0m of %d\n", i+1, n)
			}
		case "orphan":
			// It ignores what would end it with its parent, as nohup has it.
			if err := exec.Command("/bin/sh", "-c", `trap "" HUP TERM; exec sleep `+value).Start(); err != nil {
				return 1, err
			}
		case "stubborn":
			signal.Ignore(syscall.SIGTERM, syscall.SIGHUP)
		case "raise":
			n, _ := strconv.Atoi(value)
			signal.Reset()
			_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
			time.Sleep(time.Second)
		}
	}
	fmt.Fprintln(out, "done")
	return code, log.append(line{Type: "exit", Code: &code})
}
