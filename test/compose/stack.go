package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	project = "muxpost-test"
	files   = "deploy/compose"
	// sessions is where the bundled agent keeps its transcripts on a host.
	sessions = "/var/lib/muxpost/tmuxd/harness/fakeagent/sessions"
)

// services are those of ours that stay, in the order in which they are upgraded: what is asked goes before who asks.
var services = []string{"host-a", "host-b", "dispatcher", "poller"}

// stack is the stack under test.
type stack struct{ env string }

func (stack) name(service string) string { return project + "-" + service + "-1" }

// command runs a command and returns what it writes; an error has that of standard error too.
func command(ctx context.Context, env []string, line ...string) (string, error) {
	c := exec.CommandContext(ctx, line[0], line[1:]...)
	c.Env = append(os.Environ(), env...)
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		text := strings.TrimSpace(problem.String() + out.String())
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, text[max(0, len(text)-2000):])
	}
	return out.String(), nil
}

func (stack) docker(ctx context.Context, args ...string) error {
	_, err := command(ctx, nil, append([]string{"docker"}, args...)...)
	return err
}

// compose runs compose with the images of a version.
func (s stack) compose(ctx context.Context, version string, args ...string) error {
	line := []string{"docker", "compose", "-p", project}
	if s.env != "" {
		line = append(line, "--env-file", s.env)
	}
	_, err := command(ctx, []string{"MUXPOST_VERSION=" + version}, append(append(line, "-f", files+"/compose.yaml"), args...)...)
	return err
}

func (stack) script(ctx context.Context, name string, args ...string) error {
	_, err := command(ctx, nil, append([]string{files + "/testing/" + name}, args...)...)
	return err
}

// build compiles a version and puts it into images. Where the file of images has them compiled in an image, the first is for nothing.
func (s stack) build(ctx context.Context, version string) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if _, err := command(ctx, nil, "make", "-s", "build", "BIN="+filepath.Join(here, "dist"), "VERSION="+version); err != nil {
		return err
	}
	return s.compose(ctx, version, "build", "-q")
}

// upgrade replaces the containers one by one, each of which is healthy before the next, as deploy/README.md says. What then brings up the rest must
// find nothing of ours to replace: it would end every agent once more.
func (s stack) upgrade(ctx context.Context) error {
	if err := s.compose(ctx, after, "run", "--rm", "--no-deps", "migrate"); err != nil {
		return err
	}
	for _, name := range services {
		if err := s.compose(ctx, after, "up", "-d", "--no-build", "--wait", name); err != nil {
			return err
		}
	}
	was, err := s.started(ctx)
	if err != nil {
		return err
	}
	if err := s.compose(ctx, after, "up", "-d", "--no-build", "--wait"); err != nil {
		return err
	}
	is, err := s.started(ctx)
	if err == nil && is != was {
		err = fmt.Errorf("what brings up the rest replaced what was upgraded:\n%s\n%s", was, is)
	}
	return err
}

// started says which containers of ours run, and since when.
func (s stack) started(ctx context.Context) (string, error) {
	line := []string{"docker", "inspect", "-f", "{{.Name}} {{.Id}} {{.State.StartedAt}}"}
	for _, name := range services {
		line = append(line, s.name(name))
	}
	return command(ctx, nil, line...)
}

// isVersion checks which version runs: of each image, and of each host as the dispatcher knows it.
func (s stack) isVersion(ctx context.Context, version string) error {
	for _, name := range services {
		got, err := command(ctx, nil, "docker", "exec", s.name(name), "muxpost", "version")
		if err != nil || !strings.HasPrefix(got, "muxpost "+version) {
			return errors.Join(err, fmt.Errorf("%s runs %q", name, got))
		}
	}
	hosts, err := s.muxpost(ctx, "hosts", "--json")
	if n := strings.Count(hosts, `"release": "`+version+`"`); err != nil || n != 2 {
		return errors.Join(err, fmt.Errorf("the dispatcher knows %d hosts of version %s:\n%s", n, version, hosts))
	}
	return nil
}

// muxpost runs the operator's command beside the dispatcher.
func (s stack) muxpost(ctx context.Context, args ...string) (string, error) {
	return command(ctx, nil, append([]string{"docker", "exec", s.name("dispatcher"), "muxpost"}, args...)...)
}

// placed returns the host of each work item that has a session.
func (s stack) placed(ctx context.Context) (map[string]string, error) {
	out, err := s.muxpost(ctx, "sessions", "--json")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Sessions []struct{ WorkItem, Host string }
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return nil, err
	}
	hosts := map[string]string{}
	for _, one := range answer.Sessions {
		hosts[one.WorkItem] = one.Host
	}
	return hosts, nil
}

// settled waits until every event has ended.
func (s stack) settled(ctx context.Context) error {
	for began := time.Now(); ; {
		out, err := s.muxpost(ctx, "ledger", "--counts", "--json")
		if err != nil {
			return err
		}
		var answer struct {
			Counts []struct {
				State string
				Count int `json:",string"`
			}
		}
		if err := json.Unmarshal([]byte(out), &answer); err != nil {
			return err
		}
		waiting := 0
		for _, c := range answer.Counts {
			switch c.State {
			case "LEDGER_STATE_DELIVERED", "LEDGER_STATE_SETTLED":
			case "LEDGER_STATE_PENDING", "LEDGER_STATE_LEASED", "LEDGER_STATE_HELD":
				waiting += c.Count
			default:
				if c.Count > 0 {
					return fmt.Errorf("%d events are %s", c.Count, c.State)
				}
			}
		}
		if waiting == 0 {
			return nil
		}
		if time.Since(began) > 2*patience {
			return fmt.Errorf("%d events still wait", waiting)
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// tell writes what may say why it went wrong.
func (s stack) tell(ctx context.Context) {
	for _, line := range [][]string{
		{"docker", "ps", "-a", "--filter", "label=com.docker.compose.project=" + project, "--format", "{{.Names}}  {{.Image}}  {{.Status}}"},
		{"docker", "exec", s.name("dispatcher"), "muxpost", "status"}, {"docker", "exec", s.name("dispatcher"), "muxpost", "sessions"},
		{"docker", "exec", s.name("dispatcher"), "muxpost", "attention"}, {"docker", "logs", "--tail", "5", s.name("dispatcher")},
	} {
		out, err := command(ctx, nil, line...)
		fmt.Fprintln(os.Stderr, out)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// remove removes the stack with all that it kept, and our images.
func (s stack) remove(ctx context.Context) {
	_ = s.compose(ctx, before, "down", "-v", "-t", "5", "--remove-orphans") // nothing may be there
	for _, version := range []string{before, after} {
		for _, image := range []string{"central", "host", "secrets"} {
			_ = s.docker(ctx, "rmi", "muxpost/"+image+":"+version)
		}
	}
}
