// Command compose tries the stack of deploy/compose on a Docker engine: events go out to agents on both hosts without a pause, while a host is cut
// off, every container is restarted and killed, and all of it is upgraded. Then it counts what the agents' own transcripts show. It ends with
// one line, `compose-test: delivered=<n> lost=0 doubled=0`, non-zero if anything is off.
//
// Where no registry can be reached, testing/images.sh makes what stands in for public images; what is ours is what users have.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	// before and after are the versions of the upgrade.
	before, after = "composetest-1", "composetest-2"
	// cutFor is how long a host is cut off: longer than a call to it may take.
	cutFor = 15 * time.Second
	// patience bounds what has to happen after a fault has ended.
	patience = 90 * time.Second
)

func main() {
	env := flag.String("env", "deploy/compose/testing/standins.env", "`file` of images; empty for the public ones")
	keep := flag.Bool("keep", false, "leave the stack running")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Minute, errors.New("the test took longer than twenty minutes"))
	err := run(ctx, stack{env: *env}, *keep)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compose-test: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, s stack, keep bool) (err error) {
	defer func() {
		if err != nil {
			s.tell(context.WithoutCancel(ctx))
		}
		if !keep {
			s.remove(context.WithoutCancel(ctx))
		}
	}()
	s.remove(ctx) // what an earlier run left
	began := time.Now()
	step := func(what string, do func() error) {
		if err != nil {
			return
		}
		if err = do(); err != nil {
			err = fmt.Errorf("%s: %w", what, err)
			return
		}
		fmt.Printf("%6.1fs  %s\n", time.Since(began).Seconds(), what)
	}
	step("the images are built", func() error { return s.build(ctx, before) })
	step("the stack is up, and everything in it is healthy", func() error {
		return s.compose(ctx, before, "up", "-d", "--no-build", "--wait", "--wait-timeout", "120")
	})
	if err != nil {
		return err
	}
	senders := startSenders(ctx, s)
	defer senders.abandon()
	reached := func() error { return senders.reachEverybody(ctx, nil) }
	step("every item has an agent", reached)
	step("both hosts have agents, and they are known by their certificates", func() error { return s.diagnose(ctx) })
	step("host-b was cut off: its items waited, and those of host-a did not", func() error { return cut(ctx, s, senders) })
	step("what waited for host-b is delivered", reached)
	step("host-a lost its network and its name, and got them back", func() error { return unplug(ctx, s) })
	step("what waited for host-a is delivered", reached)
	for _, name := range []string{"poller", "dispatcher", "host-a", "host-b", "postgres"} {
		step(name+" was restarted, and everything goes on", func() error { return errors.Join(s.docker(ctx, "restart", "-t", "40", s.name(name)), reached()) })
	}
	step("every certificate was made anew, and nobody had to be restarted for it", func() error { return errors.Join(renew(ctx, s), reached()) })
	for _, name := range []string{"poller", "dispatcher", "host-a", "postgres"} {
		step(name+" was killed, and everything goes on", func() error {
			return errors.Join(s.docker(ctx, "kill", s.name(name)), s.docker(ctx, "start", s.name(name)), reached())
		})
	}
	step("the next version is built", func() error { return s.build(ctx, after) })
	step("each service was upgraded in its turn", func() error { return s.upgrade(ctx) })
	step("every program is of the next version, and everything goes on", func() error { return errors.Join(s.isVersion(ctx, after), reached()) })
	if err != nil {
		return err
	}
	sent := senders.stop()
	step("nothing waits any more", func() error { return s.settled(ctx) })
	if err != nil {
		return err
	}
	return judge(ctx, s, sent)
}

// cut cuts host-b off, and heals that.
func cut(ctx context.Context, s stack, senders *senders) error {
	if err := s.script(ctx, "partition.sh", "cut", s.name("host-b")); err != nil {
		return err
	}
	began := time.Now()
	err := senders.reachEverybody(ctx, func(host string) bool { return host == "host-a" })
	for err == nil && time.Since(began) < cutFor {
		err = pause(ctx, time.Second)
	}
	if err == nil {
		var hosts string
		if hosts, err = s.muxpost(ctx, "hosts"); err == nil && !strings.Contains(hosts, "silent") && !strings.Contains(hosts, "unreachable") {
			err = fmt.Errorf("a host that is cut off is listed as\n%s", hosts)
		}
	}
	return errors.Join(err, s.script(ctx, "partition.sh", "heal", s.name("host-b")))
}

// renew issues every party's certificate once more, as `secrets` does when they end soon, and sees that the new ones are shown.
func renew(ctx context.Context, s stack) error {
	shown := func() (string, error) {
		return command(ctx, nil, "docker", "exec", s.name("host-b"), "sh", "-c", `for a in dispatcher:7412 host-a:7413; do
			openssl s_client -connect $a </dev/null 2>/dev/null | openssl x509 -noout -serial || exit 1; done`)
	}
	was, err := shown()
	if err != nil {
		return err
	}
	if err := s.compose(ctx, before, "run", "--rm", "-T", "--no-deps", "--entrypoint", "sh", "secrets", "-ec", `
		for party in "service dispatcher dispatcher" "service poller poller" "host host-a host-a" "host host-b host-b"; do
			set -- $party; muxpost --data-dir /run/muxpost ca issue $1 $2 --expires 90d --out /run/muxpost/$3; done`); err != nil {
		return err
	}
	is, err := shown()
	for i, serial := range strings.Fields(is) {
		if err == nil && strings.Contains(was, serial) {
			err = fmt.Errorf("the certificate %d is shown that was before: %s", i, serial)
		}
	}
	return err
}

// unplug takes host-a off the network of hosts: its name is gone, and its address is another one afterwards.
func unplug(ctx context.Context, s stack) error {
	network := project + "_hosts"
	if err := s.docker(ctx, "network", "disconnect", network, s.name("host-a")); err != nil {
		return err
	}
	err := pause(ctx, 5*time.Second)
	return errors.Join(err, s.docker(ctx, "network", "connect", "--alias", "host-a", network, s.name("host-a")))
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
