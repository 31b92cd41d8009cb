package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
)

const version = "1.0.0"

// config is the command line, with the environment below it.
type config struct {
	settings
	sessionID  string
	resume     string
	promptFile string
	home       string
	channel    string
	task       bool
	version    bool
	// unknown is true where there is no conversation to resume.
	unknown bool
}

// configure reads the flags, and for each flag that is not given the variable FAKEAGENT_<NAME>.
func configure(args []string, getenv func(string) string, usage io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("fakeagent", flag.ContinueOnError)
	flags.SetOutput(usage)
	flags.StringVar(&c.sessionID, "session-id", "", "`UUID` of the new conversation (default: a random one)")
	flags.StringVar(&c.resume, "resume", "", "`UUID` of the conversation to go on with")
	flags.StringVar(&c.promptFile, "prompt-file", "", "`file` with the first message; it is removed once read")
	flags.StringVar(&c.home, "home", "", "`directory` of the transcripts (default ~/.fakeagent)")
	flags.StringVar(&c.channel, "channel", "", "`path` of a socket on which messages are taken in muxpost's channel protocol")
	flags.DurationVar(&c.readyAfter, "ready-after", 300*time.Millisecond, "time until the composer takes input")
	flags.DurationVar(&c.pasteSettle, "paste-settle", 150*time.Millisecond, "time after a paste in which Enter is swallowed")
	flags.DurationVar(&c.pasteDraw, "paste-draw", 0, "time until a paste that was read shows")
	flags.IntVar(&c.fold, "fold", 1000, "a paste of more characters is shown folded")
	flags.DurationVar(&c.turn, "turn", 300*time.Millisecond, "length of a turn")
	flags.DurationVar(&c.dieAfter, "die-after", 1200*time.Millisecond, "time until the resume of an unknown conversation fails")
	flags.DurationVar(&c.exitAfter, "exit-after", 0, "time until the program ends by itself (0: never)")
	flags.IntVar(&c.exitCode, "exit-code", 0, "status with which it ends then")
	flags.StringVar(&c.exitMessage, "exit-message", "", "what it says then")
	flags.BoolVar(&c.trust, "trust-dialog", false, "ask whether the folder is trusted before the composer opens")
	flags.BoolVar(&c.task, "task", false, "do the one task that the standard input says, and end; no terminal is needed")
	flags.BoolVar(&c.version, "version", false, "print the version and end")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err := fromEnvironment(flags, getenv); err != nil {
		return c, err
	}
	return c, c.check(getenv("HOME"))
}

// fromEnvironment sets the flags that the command line left alone.
func fromEnvironment(flags *flag.FlagSet, getenv func(string) string) error {
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var failed error
	flags.VisitAll(func(f *flag.Flag) {
		name := "FAKEAGENT_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := getenv(name)
		if given[f.Name] || value == "" || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = fmt.Errorf("%s=%q: %w", name, value, err)
		}
	})
	return failed
}

// check refuses what cannot be meant, and fills in the home.
func (c *config) check(userHome string) error {
	if c.sessionID != "" && c.resume != "" {
		return fmt.Errorf("--session-id and --resume exclude each other")
	}
	for name, id := range map[string]*string{"--session-id": &c.sessionID, "--resume": &c.resume} {
		if *id == "" {
			continue
		}
		// The id becomes a file name, so only the plain form of a UUID is taken.
		if len(*id) != 36 || uuid.Validate(*id) != nil {
			return fmt.Errorf("%s %q is not a UUID", name, *id)
		}
		*id = strings.ToLower(*id)
	}
	if c.fold < 0 || c.exitCode < 0 || c.exitCode > 255 || min(c.readyAfter, c.pasteSettle, c.pasteDraw, c.turn, c.dieAfter, c.exitAfter) < 0 {
		return fmt.Errorf("lengths and times are not negative, and an exit code is between 0 and 255")
	}
	if c.home == "" {
		if userHome == "" {
			return fmt.Errorf("there is no home directory: give --home")
		}
		c.home = filepath.Join(userHome, ".fakeagent")
	}
	home, err := filepath.Abs(c.home)
	c.home = home
	return err
}

// readPrompt reads the first message. The file stays until forgetPrompt, so that a start that fails has not lost it.
func (c *config) readPrompt() error {
	if c.promptFile == "" {
		return nil
	}
	b, err := os.ReadFile(c.promptFile)
	if err != nil {
		return fmt.Errorf("the prompt file cannot be read: %w", err)
	}
	c.prompt = strings.ToValidUTF8(string(b), "\uFFFD")
	if c.prompt == "" {
		return fmt.Errorf("the prompt file %s is empty", c.promptFile)
	}
	return nil
}

func (c *config) forgetPrompt() error {
	if c.promptFile == "" {
		return nil
	}
	if err := os.Remove(c.promptFile); err != nil {
		return fmt.Errorf("the prompt file cannot be removed: %w", err)
	}
	return nil
}
