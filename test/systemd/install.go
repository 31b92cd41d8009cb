package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// upstream has a server that stands for GitHub run in the middle: the source's, which lets in whoever has one of two tokens.
func upstream(ctx context.Context) error {
	at, err := os.MkdirTemp("", project)
	if err != nil {
		return err
	}
	defer os.RemoveAll(at)
	file := filepath.Join(at, "fakegithub")
	if _, err := command(ctx, nil, "env", "CGO_ENABLED=0", "go", "build", "-o", file, "./test/fakegithub/cmd/fakegithub"); err != nil {
		return err
	}
	program, err := os.Open(file)
	if err != nil {
		return err
	}
	defer program.Close() //nolint:errcheck // It was only read.
	if _, err := command(ctx, program, "docker", "exec", "-i", centre.container(), "install", "-m", "755", "/dev/stdin", "/usr/local/bin/fakegithub"); err != nil {
		return err
	}
	_, err = centre.sh(ctx, `
cat >/root/github.json <<'JSON'
{"tokens": {"token-1": "loopbot", "token-2": "loopbot"}, "repos": [{"owner": "octo", "name": "gadget"}]}
JSON
cat >/etc/systemd/system/github.service <<'UNIT'
[Service]
ExecStart=/usr/local/bin/fakegithub -listen 127.0.0.1:8000 -require-token -seed /root/github.json
UNIT
systemctl daemon-reload
systemctl start github`)
	return err
}

// installCentral makes one machine the middle, as deploy/systemd/README.md says.
func installCentral(ctx context.Context) error {
	_, err := centre.sh(ctx, `
runuser -u postgres -- createuser muxpost
runuser -u postgres -- createdb -O muxpost muxpost
/root/`+before+`/install.sh central
printf 'postgres:///muxpost?host=/var/run/postgresql\n' >/etc/muxpost/credentials/database-url
chmod 600 /etc/muxpost/credentials/database-url
echo token-1 | install -m 600 /dev/stdin /etc/muxpost/credentials/github-token
mkdir -p /etc/systemd/system/muxpost-poller.service.d
cat >/etc/systemd/system/muxpost-poller.service.d/override.conf <<'UNIT'
[Service]
LoadCredential=github-token:/etc/muxpost/credentials/github-token
UNIT
systemctl daemon-reload
as() { runuser -u muxpost -- muxpost --data-dir /var/lib/muxpost "$@"; }
as ca init
as ca issue service dispatcher --address centre
cat >/var/lib/muxpost/muxpost.yaml <<'YAML'
dispatcher:
  harness: fakeagent
  hosts: []
  database_url_file: /etc/muxpost/credentials/database-url
  tls:
    listen: 0.0.0.0:7412
    cert_file: /var/lib/muxpost/certificates/service-dispatcher/cert.pem
    key_file: /var/lib/muxpost/certificates/service-dispatcher/key.pem
    ca_file: /var/lib/muxpost/certificates/service-dispatcher/ca.pem
poller:
  database_url_file: /etc/muxpost/credentials/database-url
  sources:
    - {name: gadgets, kind: github, base_url: "http://127.0.0.1:8000", host: github.com, token_file: /etc/muxpost/credentials/github-token,
       repositories: [octo/gadget], label: muxpost, authors: [alice], interval: 1s}
YAML
chown muxpost: /var/lib/muxpost/muxpost.yaml
/root/`+before+`/install.sh central`)
	return errors.Join(err, isRead(ctx))
}

// isRead waits until the poller that runs has read its source.
func isRead(ctx context.Context) error {
	return eventually(ctx, func() error {
		sources, err := muxpost(ctx, "sources")
		if err != nil || !strings.Contains(sources, " read ") {
			return errors.Join(err, fmt.Errorf("the source was not read:\n%s", sources))
		}
		return nil
	})
}

// join makes the other machine a host. Its administrator carries an invitation there, and runs one command.
func join(ctx context.Context) error {
	// Without one it says what is missing, and starts nothing.
	out, err := host.sh(ctx, "/root/"+before+"/install.sh host")
	if err != nil || !strings.Contains(out, "next: ") {
		return errors.Join(err, fmt.Errorf("without an invitation it says %q", out))
	}
	if _, err := host.feed(ctx, "muxpost_no_invitation", "/root/"+before+"/install.sh host --join centre:7412 --token-file -"); err == nil {
		return errors.New("a word that is no invitation was enough")
	}
	invitation, err := muxpost(ctx, "hosts", "invite", "east")
	if err != nil {
		return err
	}
	if _, err := host.feed(ctx, invitation, "/root/"+before+"/install.sh host --join centre:7412 --token-file -"); err != nil {
		return err
	}
	if _, err := muxpost(ctx, "hosts", "add", "east", "east:7411"); err != nil {
		return err
	}
	return isVersion(ctx, before)
}

// isVersion waits until the dispatcher knows a host of that version.
func isVersion(ctx context.Context, version string) error {
	return eventually(ctx, func() error {
		hosts, err := muxpost(ctx, "hosts", "--json")
		if err != nil || !strings.Contains(hosts, `"release": "`+version+`"`) {
			return errors.Join(err, fmt.Errorf("the dispatcher knows no host of version %s:\n%s", version, hosts))
		}
		return nil
	})
}

// unchanged installs the same once more on both: the processes stay, and no invitation is used up.
func unchanged(ctx context.Context) error {
	for m, again := range map[machine]string{centre: "central", host: "host --join centre:7412 --token-file /dev/null"} {
		const pids = "systemctl show --property=MainPID muxpost-tmuxd muxpost-dispatcher muxpost-poller"
		was, err := m.sh(ctx, pids)
		if err != nil {
			return err
		}
		if _, err := m.sh(ctx, "/root/"+before+"/install.sh "+again); err != nil {
			return err
		}
		if is, err := m.sh(ctx, pids); err != nil || is != was {
			return errors.Join(err, fmt.Errorf("on %s these processes were\n%sand are\n%s", m, was, is))
		}
	}
	return nil
}

// healthy asks everybody whether something is wrong.
func healthy(ctx context.Context) error {
	for m, units := range map[machine]string{
		centre: "muxpost-migrate.service muxpost-dispatcher.service muxpost-poller.service muxpost-certificate.service muxpost-certificate.timer",
		host:   "muxpost-tmuxd.service muxpost-agents.socket muxpost-agents@.service muxpost-agents.slice",
	} {
		if out, err := m.sh(ctx, "cd /etc/systemd/system; systemd-analyze verify "+units+" 2>&1"); err != nil || strings.TrimSpace(out) != "" {
			return errors.Join(err, fmt.Errorf("systemd says of the units on %s: %s", m, out))
		}
		if out, err := m.sh(ctx, "systemctl --failed --no-legend"); err != nil || strings.TrimSpace(out) != "" {
			return errors.Join(err, fmt.Errorf("on %s these failed: %s", m, out))
		}
	}
	for m, user := range map[machine]string{centre: central, host: agents} {
		for _, who := range []string{"status", "doctor"} {
			if _, err := m.sh(ctx, "muxpost --data-dir /var/lib/"+user+" "+who); err != nil {
				return err
			}
		}
	}
	return nil
}

// restrictions compares what tmuxd is forbidden with what agents are: nothing, in no namespace and no filter of tmuxd's.
func restrictions(ctx context.Context, agents map[string]agent) error {
	const of = `for p in $(systemctl show --property=MainPID --value muxpost-tmuxd) %s; do
  for n in mnt pid net ipc uts user cgroup; do [ "$(readlink /proc/$p/ns/$n)" = "$(readlink /proc/1/ns/$n)" ] || printf '%%s ' $n; done
  sed -n 's/^\(NoNewPrivs\|Seccomp\|CapBnd\):\t/\1=/p' /proc/$p/status | tr '\n' ' '
  sed -n 's/^0::.*\(muxpost-agents.slice.muxpost-agents@\).*\(.service.muxpost-\).*/\1\2/p; s/^0::.*\(muxpost-tmuxd.service\)$/\1/p' /proc/$p/cgroup; done`
	var pids []string
	for _, a := range agents {
		pids = append(pids, a.pid)
	}
	out, err := host.sh(ctx, fmt.Sprintf(of, strings.Join(pids, " ")))
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil || len(lines) != 1+len(pids) {
		return errors.Join(err, fmt.Errorf("the restrictions are %q", out))
	}
	bound, err := host.sh(ctx, `sed -n 's/^CapBnd:\t/CapBnd=/p' /proc/1/status`)
	if err != nil {
		return err
	}
	if got := lines[0]; !strings.HasPrefix(got, "mnt ") || !strings.Contains(got, "CapBnd=0000000000000000 NoNewPrivs=1 Seccomp=2 ") || !strings.HasSuffix(got, "tmuxd.service") {
		return fmt.Errorf("tmuxd is restricted by %q", got)
	}
	for _, got := range lines[1:] {
		if want := strings.TrimSpace(bound) + " NoNewPrivs=0 Seccomp=0 muxpost-agents.slice/muxpost-agents@.service/muxpost-"; got != want {
			return fmt.Errorf("an agent is restricted by %q, want %q", got, want)
		}
	}
	// What tmuxd has to end although somebody else started it, it can: the control group that the wrapper made.
	_, err = host.sh(ctx, `group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/`+pids[0]+`/cgroup)
nsenter --mount --target "$(systemctl show --property=MainPID --value muxpost-tmuxd)" -- runuser -u muxpost-agents -- test -w $group/cgroup.kill`)
	return err
}
