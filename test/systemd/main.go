// Command systemd tries deploy/systemd on machines that systemd runs, each a container: from `make dist` and an invitation to a host with agents, and
// then tmuxd is restarted, stopped, killed and upgraded under them. It ends with one line, `systemd-test: agents=<n> survived=<n> delivered=<n> lost=0
// doubled=0`, non-zero if anything is off.
//
// What containers do not have is not tried: controllers that limit memory and processors, and so the end of tmuxd by either, and a reboot.
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
	before, after = "systemdtest-1", "systemdtest-2"
	// patience bounds what has to happen by itself.
	patience = 60 * time.Second
	// items is how many agents there are.
	items = 4

	centre, host = machine("centre"), machine("east")
	// agents and central are the users.
	agents, central = "muxpost-agents", "muxpost"
)

func main() {
	keep := flag.Bool("keep", false, "leave the machines running")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeoutCause(ctx, 15*time.Minute, errors.New("the test took longer than fifteen minutes"))
	err := run(ctx, *keep)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "systemd-test: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool) (err error) {
	defer func() {
		if err != nil {
			tell(context.WithoutCancel(ctx))
		}
		if !keep {
			remove(context.WithoutCancel(ctx))
		}
	}()
	remove(ctx) // what an earlier run left
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
	t := &trial{}
	step("two versions are packed", func() error { return errors.Join(pack(ctx, before), pack(ctx, after)) })
	step("two bare machines run systemd", func() error { return machines(ctx) })
	step("a server that stands for GitHub runs beside the middle", func() error { return upstream(ctx) })
	step("the dispatcher and the poller run on one, and read their source", func() error { return installCentral(ctx) })
	step("the other joined with one command", func() error { return join(ctx) })
	step("installed once more, nothing is restarted", func() error { return unchanged(ctx) })
	step("the dispatcher's certificate was renewed, and nothing was restarted", func() error { return renewed(ctx) })
	step("a token that was changed counts after a restart", func() error { return rotated(ctx) })
	step("whoever joins again as root breaks nothing", func() error { return rejoin(ctx) })
	step("nothing is wrong with the units, and nobody misses a thing", func() error { return healthy(ctx) })
	step("every item has an agent", func() error { return errors.Join(t.send(ctx), t.meet(ctx)) })
	step("what is forbidden to tmuxd is not forbidden to agents", func() error { return restrictions(ctx, t.agents) })
	lives := func() error { return errors.Join(t.send(ctx), t.meet(ctx)) }
	for _, fault := range []struct{ what, do string }{
		{"tmuxd was restarted", `systemctl restart muxpost-tmuxd`},
		{"tmuxd was stopped and started", `systemctl stop muxpost-tmuxd; systemctl start muxpost-tmuxd`},
		{"tmuxd was killed", `systemctl kill --kill-whom=main --signal=KILL muxpost-tmuxd`},
		{"all of tmuxd was killed, and the launcher's socket started anew", `systemctl kill --kill-whom=all --signal=KILL muxpost-tmuxd; systemctl restart muxpost-agents.socket`},
		{"tmuxd was upgraded", `/root/` + after + `/install.sh host`},
	} {
		step(fault.what+": its agents are the same, and go on", func() error {
			_, err := host.sh(ctx, fault.do)
			return errors.Join(err, lives())
		})
	}
	step("the next version runs on the host", func() error { return isVersion(ctx, after) })
	survived := t.same
	step("the end of the slice is the end of all agents", func() error { return t.takeDown(ctx) })
	step("they come back with their conversations", func() error { return t.comeBack(ctx) })
	step("the dispatcher and the poller were upgraded", func() error {
		_, err := centre.sh(ctx, "/root/"+after+"/install.sh central")
		return errors.Join(err, lives())
	})
	step("the database was restored by its superuser, and the services go on with it", func() error { return errors.Join(restored(ctx), lives()) })
	if err != nil {
		return err
	}
	delivered, lost, doubled, err := t.judge(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("systemd-test: agents=%d survived=%d delivered=%d lost=%d doubled=%d\n", items, survived, delivered, lost, doubled)
	if survived != items || lost+doubled > 0 || delivered == 0 {
		return errors.New("what arrived is not what was sent")
	}
	return nil
}

func pack(ctx context.Context, version string) error {
	_, err := command(ctx, nil, "make", "-s", "dist", "VERSION="+version)
	return err
}

func machines(ctx context.Context) error {
	if _, err := command(ctx, nil, "docker", "build", "-q", "-t", image, "--build-arg", "BASE_IMAGE="+base, "test/systemd/machine"); err != nil {
		return err
	}
	if _, err := command(ctx, nil, "docker", "network", "create", project); err != nil {
		return err
	}
	for _, m := range []machine{centre, host} {
		if err := m.boot(ctx); err != nil {
			return err
		}
		for _, version := range []string{before, after} {
			if err := m.unpack(ctx, version); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes the machines.
func remove(ctx context.Context) {
	for _, m := range []machine{centre, host} {
		_, _ = command(ctx, nil, "docker", "rm", "-f", "-v", m.container()) // none may be there
	}
	_, _ = command(ctx, nil, "docker", "network", "rm", project)
}

// tell writes what may say why it went wrong.
func tell(ctx context.Context) {
	for _, look := range []struct {
		m     machine
		lines string
	}{
		{host, "systemctl --no-pager status 'muxpost*' | head -60; journalctl --no-pager -n 40 -o cat"},
		{centre, "systemctl --no-pager status 'muxpost*' | head -40; journalctl --no-pager -n 30 -o cat; muxpost hosts; muxpost sessions; muxpost attention"},
	} {
		out, err := look.m.sh(ctx, "set +e; "+look.lines)
		fmt.Fprintln(os.Stderr, strings.TrimSpace(out))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}
