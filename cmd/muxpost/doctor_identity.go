package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/settings"
)

// certificates looks at what this machine shows to others, and at the authority if it is here.
func (d *doctor) certificates(context.Context) {
	const check = "certificates"
	before, looked := len(d.findings), 0
	for _, c := range []struct {
		key   string
		files settings.TLS
	}{{"tmuxd.tls", d.Tmuxd.TLS.Files()}, {"dispatcher.tls", d.Dispatcher.TLS.Files()}, {"poller.tls", d.Poller.TLS.Files()}, {"command.tls", d.Command.TLS}} {
		if c.files.CertFile == "" {
			continue
		}
		looked++
		v, err := identity.Files{Cert: c.files.CertFile, Key: c.files.KeyFile, CA: c.files.CAFile}.Look()
		if err != nil {
			d.err(check, levelFail, fmt.Errorf("%s: %w", c.key, err))
			continue
		}
		d.ends(check, fmt.Sprintf("the certificate of %s (%s, %s)", c.key, v.Name, c.files.CertFile), v,
			"issue another into the same directory, as with muxpost ca issue; nothing needs a restart")
	}
	if _, err := os.Stat(authority.CertFile(d.DataDir.CA())); !errors.Is(err, fs.ErrNotExist) {
		looked++
		if ca, err := authority.Open(d.DataDir.CA()); err != nil {
			d.err(check, levelFail, err)
		} else {
			d.ends(check, "the authority", ca.Validity(), "make another one: everything that it issued ends with it")
		}
	}
	switch {
	case len(d.findings) > before:
	case looked == 0:
		d.ok(check, "none is configured; nothing here talks to other machines")
	default:
		d.ok(check, "%s looked at, none ends soon", view.Count(looked, "certificate", "certificates"))
	}
}

// ends adds a finding for a certificate that ended, or of whose life a third or less is left.
func (d *doctor) ends(check, what string, v identity.Validity, remedy string) {
	now := d.app.now()
	switch {
	case !now.Before(v.Ends):
		d.add(check, levelFail, what+" ended "+d.app.printer().Ago(v.Ends), remedy)
	case v.Due(now):
		d.add(check, levelWarn, what+" ends "+d.app.printer().Ago(v.Ends), remedy)
	}
}
