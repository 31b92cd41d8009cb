package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
)

func tokensCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "tokens", Short: "Make, list and revoke the tokens of people and scripts on other machines", Args: args(0, 0, "muxpost tokens --help lists what it can do"),
		Long: `tokens are for whoever calls the dispatcher and the poller from another machine (their tls.listen). On this machine nobody needs one: who may
use a service's socket may do everything. What a role may do:

  read      look at everything
  operate   also send, pause, stop, retry, drain: what is done every day
  admin     also add and give up hosts, and make tokens`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(createTokenCommand(a), listTokensCommand(a), revokeTokenCommand(a))
	return c
}

type tokenFlags struct {
	operatorFlags
	name, role, term string
}

func createTokenCommand(a *app) *cobra.Command {
	var o tokenFlags
	c := &cobra.Command{
		Use: "create --role ROLE --name NAME", Short: "Make a token, which is shown once", Args: args(0, 0, "the owner goes into --name"),
		Long: `create writes a token to standard output and nothing else, so that it can go into a file without being seen:

  umask 077; muxpost tokens create --role operate --name ann --expires 30d > ann.token

Whoever has it names the file as command.token_file in the configuration, or in MUXPOST_TOKEN_FILE. What is done with it is said to have been done by
NAME. Only a hash of it is kept: a token that is lost is revoked, and another one made.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.createToken(cmd.Context(), o) },
	}
	c.Flags().StringVar(&o.role, "role", "", "read, operate or admin")
	c.Flags().StringVar(&o.name, "name", "", "whose it is")
	c.Flags().StringVar(&o.term, "expires", "", "how long it counts, such as 12h or 30d (default until it is revoked)")
	a.whoFlag(c, &o.operatorFlags)
	a.jsonFlag(c)
	return c
}

func (a *app) createToken(ctx context.Context, o tokenFlags) error {
	role, ok := dispatcherv1.Role_value["ROLE_"+strings.ToUpper(o.role)]
	if !ok || role == 0 {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%q is no role", view.Clip(o.role, 40)).WithRemedy("say --role read, --role operate or --role admin")
	}
	request := &dispatcherv1.CreateTokenRequest{Name: o.name, Role: dispatcherv1.Role(role), Who: a.by(o.operatorFlags)}
	if o.term != "" {
		term, err := parseTerm("--expires", o.term)
		if err != nil {
			return err
		}
		request.ExpireTime = timestamppb.New(a.now().Add(term))
	}
	return a.hostCall(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		made, err := c.CreateToken(ctx, request)
		if err != nil {
			return err
		}
		if a.json {
			return view.JSON(a.stdout, made)
		}
		a.printer().Line("%s", made.GetSecret())
		fmt.Fprintf(a.stderr, "token %s of %s (%s) was made; this is the only time that it is shown\n", made.GetToken().GetId(), made.GetToken().GetName(), o.role) //nolint:errcheck // A terminal that is gone has no reader.
		return nil
	})
}

func listTokensCommand(a *app) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List the tokens, without their secrets", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				found, err := c.ListTokens(ctx, &dispatcherv1.ListTokensRequest{All: all})
				if err != nil {
					return err
				}
				if a.json {
					return view.JSON(a.stdout, found)
				}
				a.printer().Tokens(found.GetTokens())
				return nil
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "also those that ended or were revoked")
	a.jsonFlag(c)
	return c
}

func revokeTokenCommand(a *app) *cobra.Command {
	var o operatorFlags
	c := &cobra.Command{
		Use: "revoke ID", Short: "End a token at once", Args: args(1, 1, "muxpost tokens list shows the ids"),
		RunE: func(cmd *cobra.Command, given []string) error {
			return a.hostCall(cmd.Context(), func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
				answer, err := c.RevokeToken(ctx, &dispatcherv1.RevokeTokenRequest{Id: given[0], Who: a.by(o)})
				if err != nil {
					return err
				}
				t := answer.GetToken()
				if !answer.GetChanged() {
					a.say("token %s of %s had been revoked before", view.Clean(t.GetId()), view.Clean(t.GetName()))
					return nil
				}
				a.say("token %s of %s does not count any more", view.Clean(t.GetId()), view.Clean(t.GetName()))
				return nil
			})
		},
	}
	a.whoFlag(c, &o)
	return c
}
