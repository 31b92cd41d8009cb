package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// diagnose asks as a person does from inside the network, with grpcurl: hosts by certificate, the dispatcher and the poller by certificate and
// token. Who has no certificate, another host's, or no token where one is needed, is refused.
func (s stack) diagnose(ctx context.Context) error {
	hosts, err := s.placed(ctx)
	if err != nil {
		return err
	}
	lived := map[string]string{}
	for item, host := range hosts {
		lived[host] = item
	}
	if len(hosts) != items || len(lived) != 2 {
		return fmt.Errorf("%d items have sessions on %d hosts", len(hosts), len(lived))
	}
	curl, err := grpcurl(ctx)
	if err != nil {
		return err
	}
	// call runs grpcurl in a container that is gone afterwards; volume is what it holds at /v.
	call := func(volume, network string, args ...string) (string, error) {
		return command(ctx, nil, append([]string{"docker", "run", "--rm", "--read-only", "--cap-drop", "ALL", "--network", network, "-v", project + "_" + volume + ":/v:ro",
			"-v", curl + ":/grpcurl:ro", "--entrypoint", "/grpcurl", "muxpost/host:" + before, "-max-time", "10"}, args...)...)
	}
	network, shown := project+"_hosts", []string{"-insecure", "-cert", "/v/cert.pem", "-key", "/v/key.pem"}
	host := func(volume, name string, rest ...string) (string, error) {
		return call(volume, network, append(append(shown, strings.Split(rest[0], " ")...), append([]string{name + ":7413"}, rest[1:]...)...)...)
	}
	for name, item := range lived {
		out, err := host("tls-operator", name, `-d {"work_item":"`+item+`"}`, "muxpost.tmuxd.v1.TmuxdService/SessionState")
		if err != nil || !strings.Contains(out, `"STATE_LIVE"`) {
			return errors.Join(err, fmt.Errorf("%s says of %s: %s", name, item, out))
		}
		if out, err = host("tls-operator", name, "-emit-defaults", "grpc.health.v1.Health/Check"); err != nil || !strings.Contains(out, `"SERVING"`) {
			return errors.Join(err, fmt.Errorf("%s says of its health: %s", name, out))
		}
	}
	if out, err := host("tls-host-b", "host-a", "-emit-defaults", "list"); err == nil {
		return fmt.Errorf("host-a answers host-b: %s", out)
	}
	if out, err := call("tls-operator", network, "-insecure", "host-a:7413", "list"); err == nil {
		return fmt.Errorf("host-a answers somebody without a certificate: %s", out)
	}
	made, err := s.muxpost(ctx, "tokens", "create", "--name", "grpcurl", "--role", "read")
	if err != nil {
		return err
	}
	token := []string{"-H", "authorization: Bearer " + strings.TrimSpace(made)}
	for _, c := range []struct {
		network, address, method, says string
		times                          int
	}{
		{network, "dispatcher:7412", "muxpost.dispatcher.v1.DispatcherService/ListHosts", `"reached": true`, 2},
		{project + "_central", "poller:7414", "muxpost.poller.v1.PollerService/CountLedger", `"LEDGER_STATE_DELIVERED"`, 1},
	} {
		out, err := call("tls-operator", c.network, append(append(shown, token...), c.address, c.method)...)
		if err != nil || strings.Count(out, c.says) < c.times {
			return errors.Join(err, fmt.Errorf("%s says of %s: %s", c.address, c.method, out))
		}
		if out, err := call("tls-operator", c.network, append(shown, c.address, c.method)...); err == nil {
			return fmt.Errorf("%s answers somebody without a token: %s", c.address, out)
		}
		if out, err := call("tls-host-b", c.network, "-plaintext", c.address, c.method); err == nil {
			return fmt.Errorf("%s answers in plain text: %s", c.address, out)
		}
	}
	if _, err := s.muxpost(ctx, "status"); err != nil {
		return err
	}
	// The poller has no other way to the dispatcher than its certificate.
	if out, err := command(ctx, nil, "docker", "exec", s.name("poller"), "muxpost", "pause", "--all"); err == nil {
		return fmt.Errorf("the poller's container reaches the dispatcher by a socket: %s", out)
	}
	return nil
}

// grpcurl returns the path of grpcurl, which is compiled where it is missing.
func grpcurl(ctx context.Context) (string, error) {
	if path, err := exec.LookPath("grpcurl"); err == nil {
		return filepath.Abs(path)
	}
	if _, err := command(ctx, []string{"CGO_ENABLED=0"}, "make", "-s", "grpcurl"); err != nil {
		return "", err
	}
	return filepath.Abs(".bin/grpcurl")
}
