package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/access"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/inherit"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/rpc"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

func inviteCommand(a *app) *cobra.Command {
	var o operatorFlags
	var term string
	c := &cobra.Command{
		Use: "invite NAME", Short: "Make an invitation, by which a machine becomes host NAME, once", Args: args(1, 1, "name the host that is to join"),
		Long: `invite writes an invitation to standard output and nothing else. Whoever has it gets the certificate of the host, once, until it ends: carry it to
that machine as you would a password, and use it there with muxpost hosts join. The dispatcher needs an authority (muxpost ca init) and an address for
other machines (dispatcher.tls.listen).`,
		Example: `  muxpost hosts invite east | ssh east muxpost hosts join 10.0.0.5:7412 --token-file -`,
		RunE: func(cmd *cobra.Command, given []string) error {
			request := &dispatcherv1.InviteHostRequest{Name: given[0], Who: a.by(o)}
			lasts, err := parseTerm("--expires", term)
			if err != nil {
				return err
			}
			request.ExpireTime = timestamppb.New(a.now().Add(lasts))
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				made, err := c.InviteHost(ctx, request)
				if err != nil {
					return err
				}
				a.printer().Line("%s", made.GetSecret())
				_, err = fmt.Fprintf(a.stderr, "the invitation of host %s counts once, until %s\n", view.Clean(given[0]), a.printer().When(made.GetExpireTime()))
				return err
			})
		},
	}
	c.Flags().StringVar(&term, "expires", "1h", "how long it counts; a day at most")
	a.whoFlag(c, &o)
	return c
}

type joinFlags struct{ token, listen string }

func joinCommand(a *app) *cobra.Command {
	var o joinFlags
	c := &cobra.Command{
		Use: "join DISPATCHER", Short: "Make this machine a host, by an invitation", Args: args(1, 1, "name the dispatcher's address for other machines, such as 10.0.0.5:7412"),
		Long: `join makes a key on this machine, gets the certificate that goes with it, and writes both below the data directory (certificates/). The
invitation says by which certificate the authority is known: nobody else is spoken to. Where there is no configuration yet, join writes one for tmuxd;
otherwise it says what to add. tmuxd renews the certificate by itself.`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.join(cmd.Context(), given[0], o) },
	}
	c.Flags().StringVar(&o.token, "token-file", "", "`FILE` with the invitation; - is standard input")
	c.Flags().StringVar(&o.listen, "listen", "0.0.0.0:7411", "where the dispatcher will reach tmuxd")
	return c
}

// maxInvitation is how long a file with an invitation may be.
const maxInvitation = 4 << 10

func (a *app) join(ctx context.Context, dispatcher string, o joinFlags) error {
	invitation, err := a.invitation(o.token)
	if err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "--listen: %q is not an address", view.Clip(o.listen, 100)).WithRemedy("write it as 0.0.0.0:7411")
	}
	dir, err := a.dataDir()
	if err != nil {
		return err
	}
	// What could fail here is tried before the invitation is used up.
	if err := inherit.MkdirAll(dir.Certificates(), 0o700); err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the directory for certificates cannot be made", err)
	}
	key, request, err := authority.Request()
	if err != nil {
		return err
	}
	answer, err := enroll(ctx, dispatcher, invitation, request)
	if err != nil {
		return err
	}
	name := answer.GetName()
	if _, err := authority.Name("host", name); err != nil {
		return err
	}
	at := filepath.Join(dir.Certificates(), "host-"+name)
	if err := inherit.MkdirAll(at, 0o700); err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the directory for the certificate cannot be made", err)
	}
	files := authority.FilesIn(at)
	if err := authority.Replace(files, answer.GetCertificate(), key, answer.GetAuthority()); err != nil {
		return err
	}
	got, err := files.Look()
	if err != nil {
		return err
	}
	a.say("this machine is host %s, by the certificate in %s, until %s", name, at, a.printer().Time(got.Ends))
	return a.configureHost(dir, name, dispatcher, o.listen, files)
}

// invitation reads the invitation from a file or from standard input.
func (a *app) invitation(from string) (string, error) {
	in := a.stdin
	switch from {
	case "":
		return "", fault.New(fault.Invalid, fault.ReasonBadArgument, "no invitation is given").
			WithRemedy("--token-file FILE, or --token-file - for standard input: on a command line everybody on the machine could read it")
	case "-":
	default:
		f, err := os.Open(from)
		if err != nil {
			return "", fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the invitation cannot be read", err)
		}
		defer f.Close() //nolint:errcheck // It was only read.
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxInvitation))
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "the invitation cannot be read", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// enroll gets a certificate from the dispatcher that the invitation's authority vouches for.
func enroll(ctx context.Context, dispatcher, invitation string, request []byte) (*dispatcherv1.EnrollResponse, error) {
	_, _, fingerprint, err := access.ParseInvitation(invitation)
	if err != nil {
		return nil, err
	}
	conn, err := rpc.Dial(dispatcher, rpc.DialOptions{Name: "the dispatcher", Silent: fault.ReasonDispatcherSilent,
		TLS: identity.Pinned(fingerprint, func(id identity.ID) bool { return id == identity.Dispatcher })})
	if err != nil {
		return nil, err
	}
	defer conn.Close() //nolint:errcheck // It was one question.
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	answer, err := dispatcherv1.NewDispatcherServiceClient(conn).Enroll(ctx, &dispatcherv1.EnrollRequest{Invitation: invitation, Request: request})
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(answer.GetAuthority())
	if block == nil {
		return nil, fault.New(fault.Internal, "", "the dispatcher answered without the authority's certificate")
	}
	if sum := sha256.Sum256(block.Bytes); !bytes.Equal(sum[:], fingerprint) {
		return nil, fault.New(fault.Denied, "", "the dispatcher answered with the certificate of another authority than the invitation names")
	}
	return answer, nil
}

// configureHost writes a configuration for tmuxd where there is none, and says what to do next.
func (a *app) configureHost(dir layout.DataDir, name, dispatcher, listen string, files identity.Files) error {
	text := fmt.Sprintf("tmuxd:\n  host: %q\n  renew_from: %q\n  tls: {listen: %q, cert_file: %q, key_file: %q, ca_file: %q}\n",
		name, dispatcher, listen, files.Cert, files.Key, files.CA)
	f, err := os.OpenFile(dir.Config(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		a.say("%s is there already: see that it says\n\n%s", dir.Config(), text)
	case err != nil:
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the configuration cannot be written", err)
	default:
		_, err := f.WriteString(text)
		if err := errors.Join(err, inherit.Owner(f), f.Close()); err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the configuration cannot be written", err)
		}
		a.say("%s was written", dir.Config())
	}
	_, port, _ := net.SplitHostPort(listen)
	a.say("next: start muxpost-tmuxd --data-dir %s here, and where the dispatcher is: muxpost hosts add %s THIS-MACHINE:%s", view.Quote(string(dir)), name, port)
	return nil
}
