package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// rotated changes the source's token: the poller has it after its restart, and not before.
func rotated(ctx context.Context) error {
	const given = "cat /run/credentials/muxpost-poller.service/github-token"
	for _, step := range []struct{ do, want string }{
		{"echo token-2 >/etc/muxpost/credentials/github-token", "token-1"}, {"systemctl restart muxpost-poller", "token-2"},
	} {
		if got, err := centre.sh(ctx, step.do+"; "+given); err != nil || strings.TrimSpace(got) != step.want {
			return errors.Join(err, fmt.Errorf("after %q the poller has %q, not %s", step.do, got, step.want))
		}
	}
	return isRead(ctx)
}

// renewed has the certificate of the dispatcher made anew by what the timer starts, with the addresses that it had. The poller has none, and gets
// none. Whether the dispatcher shows it is seen as soon as a host is met again.
func renewed(ctx context.Context) error {
	const (
		state = `systemctl show --property=MainPID muxpost-dispatcher muxpost-poller
systemctl is-active muxpost-certificate.timer; systemctl is-enabled muxpost-certificate.timer; systemctl show --property=Result muxpost-certificate.service
find /var/lib/muxpost/certificates -printf '%P %u:%g %m\n' | sort`
		key = `sha256sum /var/lib/muxpost/certificates/service-dispatcher/key.pem`
	)
	was, err := centre.sh(ctx, state)
	if err != nil {
		return err
	}
	for _, want := range []string{"\nactive\nenabled\nResult=success\n", "service-dispatcher/key.pem muxpost:muxpost 600\n"} {
		if !strings.Contains(was, want) {
			return fmt.Errorf("%q is not in:\n%s", want, was)
		}
	}
	old, err := centre.sh(ctx, key)
	if err != nil {
		return err
	}
	told, err := centre.sh(ctx, "systemctl start muxpost-certificate.service; journalctl --sync; journalctl --no-pager -o cat -u muxpost-certificate.service")
	if err != nil || !strings.Contains(told, "kept from the certificate before: centre") {
		return errors.Join(err, fmt.Errorf("the renewal says:\n%s", told))
	}
	if now, err := centre.sh(ctx, key); err != nil || now == old {
		return errors.Join(err, fmt.Errorf("the key is still %s", old))
	}
	if is, err := centre.sh(ctx, state); err != nil || is != was {
		return errors.Join(err, fmt.Errorf("it was\n%sand is\n%s", was, is))
	}
	return nil
}

// rejoin has the host join once more, by a person who is root there, and tmuxd start with what he left.
func rejoin(ctx context.Context) error {
	invitation, err := muxpost(ctx, "hosts", "invite", "east")
	if err != nil {
		return err
	}
	if _, err := host.feed(ctx, invitation, "muxpost --data-dir /var/lib/muxpost-agents hosts join centre:7412 --token-file -"); err != nil {
		return err
	}
	if left, err := host.sh(ctx, "find /var/lib/muxpost-agents ! -user muxpost-agents; systemctl restart muxpost-tmuxd"); err != nil || left != "" {
		return errors.Join(err, fmt.Errorf("these are not tmuxd's:\n%s", left))
	}
	return eventually(ctx, func() error {
		hosts, err := muxpost(ctx, "hosts")
		if err != nil || !strings.Contains(hosts, " reached ") {
			return errors.Join(err, fmt.Errorf("the host is not reached:\n%s", hosts))
		}
		return nil
	})
}

// restored replaces the database by its dump, as docs/backup.md has it for a Postgres of one's own. The units of the services migrate what comes back.
func restored(ctx context.Context) error {
	doc, err := os.ReadFile("docs/backup.md")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(doc), "```sh superuser\n")
	commands, _, found := strings.Cut(rest, "```")
	if !found {
		return errors.New("docs/backup.md has no block for the superuser")
	}
	const migrated = "systemctl show --property=InvocationID --value muxpost-migrate"
	was, err := centre.sh(ctx, migrated)
	if err != nil {
		return err
	}
	_, err = centre.sh(ctx, `cd /tmp
systemctl stop muxpost-dispatcher muxpost-poller
runuser -u postgres -- pg_dump --format=custom --file=muxpost.dump muxpost
runuser -u postgres -- sh -eu <<'SH'
`+commands+`SH
systemctl start muxpost-dispatcher muxpost-poller`)
	if err != nil {
		return err
	}
	if is, err := centre.sh(ctx, migrated); err != nil || is == was {
		return errors.Join(err, errors.New("the schema was not looked at before the services started"))
	}
	return nil
}
