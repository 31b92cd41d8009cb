package main

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/authority"
	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/layout"
)

func caCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "ca", Short: "Issue the certificates by which machines know one another", Args: args(0, 0, "muxpost ca --help lists what it can do"),
		Long: `ca is a small authority for one installation: a key and a certificate in the data directory (ca/). Only machines that talk to other
machines need certificates; on one machine nothing does. Keep the directory where the central services are, and a copy of it in a safe place.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(caInitCommand(a), caIssueCommand(a), caShowCommand(a), caTrustCommand(a))
	return c
}

func caInitCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "init", Short: "Make the authority; one that is there is never overwritten", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			dir, err := a.dataDir()
			if err != nil {
				return err
			}
			made, err := authority.Init(dir.CA(), a.now())
			if err != nil {
				return err
			}
			a.say("the authority is in %s and ends at %s; whoever has its key can issue any certificate", dir.CA(), a.printer().Time(made.Ends()))
			a.say("next: muxpost ca issue service dispatcher, and muxpost ca issue host NAME for each host")
			return nil
		},
	}
}

type issueFlags struct {
	out, term string
	addresses []string
	// addressed is whether anything was said of addresses; else they are those of the certificate that is replaced.
	addressed bool
}

func caIssueCommand(a *app) *cobra.Command {
	var o issueFlags
	c := &cobra.Command{
		Use: "issue KIND NAME", Short: "Write a certificate and its key for a service, a host or a person", Args: args(2, 2, "as in: muxpost ca issue host east"),
		Long: `issue writes cert.pem, key.pem and ca.pem (the authority's certificate) for a party, in the place of older ones of the same party: services
read them again by themselves. KIND is service (dispatcher or poller), host or operator. --address puts names and addresses into it by which
curl and other programs recognise a server; muxpost itself goes by the name alone. Without it those of the certificate that is replaced stay, and
--address '' leaves them out.`,
		Example: `  muxpost ca issue service dispatcher --address muxpost.example.com
  muxpost ca issue host east --expires 90d --out /etc/muxpost/east`,
		RunE: func(cmd *cobra.Command, given []string) error {
			o.addressed = cmd.Flags().Changed("address")
			return a.issue(given[0], given[1], o)
		},
	}
	c.Flags().StringVar(&o.out, "out", "", "`DIR` to write to (default certificates/KIND-NAME in the data directory)")
	c.Flags().StringVar(&o.term, "expires", "30d", "how long it lasts, such as 12h or 90d; a year at most")
	c.Flags().StringSliceVar(&o.addresses, "address", nil, "a name or an address of the server, for clients other than muxpost; may be repeated")
	a.jsonFlag(c)
	return c
}

// issuedFiles is what was written, for programs.
type issuedFiles struct {
	authority.Issued
	CertFile string `json:"cert_file"`
	KeyFile  string `json:"key_file"`
	CAFile   string `json:"ca_file"`
}

func (a *app) issue(kind, name string, o issueFlags) error {
	id, err := authority.Name(kind, name)
	if err != nil {
		return err
	}
	term, err := parseTerm("--expires", o.term)
	if err != nil {
		return err
	}
	dataDir, err := a.dataDir()
	if err != nil {
		return err
	}
	ca, err := authority.Open(dataDir.CA())
	if err != nil {
		return err
	}
	out := o.out
	if out == "" {
		out = filepath.Join(dataDir.Certificates(), kind+"-"+name)
	}
	if out, err = filepath.Abs(out); err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "--out has no absolute path", err)
	}
	var kept []string
	if !o.addressed {
		kept = authority.AddressesIn(out, id)
		o.addresses = kept
	}
	made, err := ca.Issue(authority.Order{Name: id, Term: term, Addresses: o.addresses}, a.now())
	if err != nil {
		return err
	}
	files, err := ca.WriteTo(out, made)
	if err != nil {
		return err
	}
	if len(kept) > 0 {
		a.say("kept from the certificate before: %s (--address names others)", view.Clean(strings.Join(kept, ", ")))
	}
	if a.json {
		return a.values(issuedFiles{made.Issued, files.Cert, files.Key, files.CA})
	}
	a.say("%s until %s, in %s", id, a.printer().Time(made.Ends), out)
	a.say("for the configuration: {cert_file: %s, key_file: %s, ca_file: %s}", files.Cert, files.Key, files.CA)
	return nil
}

// certificateRow is a certificate that was issued, and how it stands.
type certificateRow struct {
	authority.Issued
	State string `json:"state"`
}

func caShowCommand(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "show", Short: "List what was issued, and when it ends", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			rows, ends, err := a.issued(all)
			if err != nil {
				return err
			}
			if a.json {
				return a.values(struct {
					Ends         time.Time        `json:"ends"`
					Certificates []certificateRow `json:"certificates"`
				}{ends, rows})
			}
			p := a.printer()
			cells := make([][]view.Cell, 0, len(rows))
			for _, r := range rows {
				tone := map[string]view.Tone{"valid": view.Good, "due": view.Warn, "ended": view.Bad}[r.State]
				cells = append(cells, []view.Cell{view.Text(string(r.Name)), {Text: r.State, Tone: tone}, view.Text(p.Time(r.Ends)), view.Text(p.Time(r.Begins)),
					view.Text(r.Serial)})
			}
			p.Table("nothing was issued yet", []string{"NAME", "STATE", "ENDS", "ISSUED", "SERIAL"}, cells)
			p.Line("\nthe authority ends at %s", p.Time(ends))
			return nil
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also what a later one of the same name replaces")
	a.jsonFlag(c)
	return c
}

// issued lists what was issued, of each name the latest alone unless all are wanted.
func (a *app) issued(all bool) (rows []certificateRow, ends time.Time, err error) {
	ca, err := a.ca()
	if err != nil {
		return nil, ends, err
	}
	list, err := ca.List()
	if err != nil {
		return nil, ends, err
	}
	slices.Reverse(list)
	seen := map[identity.ID]bool{}
	rows = []certificateRow{}
	for _, i := range list {
		if seen[i.Name] && !all {
			continue
		}
		seen[i.Name] = true
		state := "valid"
		switch v := (identity.Validity{Name: i.Name, Begins: i.Begins, Ends: i.Ends}); {
		case !a.now().Before(i.Ends):
			state = "ended"
		case v.Due(a.now()):
			state = "due"
		}
		rows = append(rows, certificateRow{i, state})
	}
	slices.SortStableFunc(rows, func(x, y certificateRow) int { return strings.Compare(string(x.Name), string(y.Name)) })
	return rows, ca.Ends(), nil
}

func caTrustCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "trust", Short: "Print the authority's certificate, for others to trust", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			ca, err := a.ca()
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(ca.PEM())
			return err
		},
	}
}

// dataDir is where the installation is. A mistake elsewhere in its configuration does not matter here.
func (a *app) dataDir() (layout.DataDir, error) {
	s, err := a.settings()
	if s.DataDir == "" {
		return "", err
	}
	return s.DataDir, nil
}

// ca opens the authority of this installation.
func (a *app) ca() (*authority.Authority, error) {
	dir, err := a.dataDir()
	if err != nil {
		return nil, err
	}
	return authority.Open(dir.CA())
}

// parseTerm reads how long something lasts: 30d, or as Go writes durations.
func parseTerm(flag, text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s: %q is not a time", flag, view.Clip(text, 40)).WithRemedy("write it as 12h or 30d")
	}
	return d, nil
}
