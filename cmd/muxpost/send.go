package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
	"muxpost.dev/muxpost/core/session"
	"muxpost.dev/muxpost/core/workitem"
	dispatcherv1 "muxpost.dev/muxpost/proto/gen/muxpost/dispatcher/v1"
	pollerv1 "muxpost.dev/muxpost/proto/gen/muxpost/poller/v1"
)

const (
	// waitPause is the time between two looks at an event that is waited for.
	waitPause = 250 * time.Millisecond
	// defaultWait is how long --wait waits unless told otherwise.
	defaultWait = 5 * time.Minute
)

type sendOptions struct {
	dryRun, wait bool
	key, harness string
	timeout      time.Duration
}

func sendCommand(a *app) *cobra.Command {
	var o sendOptions
	c := &cobra.Command{
		Use: "send ITEM TEXT|-", Short: "Send a message to the agent of a work item; it is started if there is none",
		Args: args(1, 2, "put the text in quotes, or write - to read it from standard input"),
		Example: `  muxpost send github:octo/widget#7 "please look at the failing test"
  muxpost send --wait github:octo/widget#7 - < message.txt`,
		RunE: func(cmd *cobra.Command, given []string) error { return a.send(cmd.Context(), given, o) },
	}
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "have it checked as if it were sent, and send nothing; whether an agent can be started is only seen at the start")
	c.Flags().StringVar(&o.key, "key", "", "idempotency `KEY`: a second send with the same key is the first one again; without one, one is made, and named where it is needed")
	c.Flags().StringVar(&o.harness, "harness", "", "what to start if the item has no session yet, instead of the configured one")
	c.Flags().BoolVar(&o.wait, "wait", false, "follow it until it ends; exit code 0 only when it was delivered")
	c.Flags().DurationVar(&o.timeout, "timeout", defaultWait, "how long --wait waits")
	a.jsonFlag(c)
	return c
}

func (a *app) send(ctx context.Context, given []string, o sendOptions) error {
	ref, err := parseItem(given[0])
	if err != nil {
		return err
	}
	if len(given) < 2 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "there is no text to send").
			WithRemedy("put it in quotes behind the work item, or write - to read it from standard input")
	}
	text := given[1]
	if text == "-" {
		if text, err = readText(a.stdin); err != nil {
			return err
		}
	}
	// What the poller would refuse is refused here, so that nothing of it leaves this process.
	if _, _, err := prompt.Clean(text); err != nil {
		return err
	}
	if o.timeout <= 0 {
		return fault.New(fault.Invalid, fault.ReasonBadArgument, "--timeout must be above zero")
	}
	s, err := a.dial()
	if err != nil {
		return err
	}
	defer s.close()
	if o.harness != "" {
		if err := s.canStart(ctx, o.harness); err != nil {
			return err
		}
	}
	request := &pollerv1.SubmitRequest{WorkItem: ref.String(), Text: text, IdempotencyKey: o.key, DryRun: o.dryRun, Harness: o.harness}
	if o.key == "" && !o.dryRun {
		request.IdempotencyKey = "send-" + strings.ToLower(rand.Text())
	}
	answer, err := a.submit(ctx, s, request)
	if err != nil {
		return err
	}
	if o.key == "" {
		answer.Existed = false // a key of our own is known only where it was taken before the answer was lost
	}
	if o.wait && !o.dryRun {
		return a.await(ctx, s, answer.GetEntry(), o.timeout)
	}
	if a.json {
		return view.JSON(a.stdout, answer)
	}
	a.sent(answer, ref, o)
	return nil
}

// submit has the poller take a message, and once more where the answer was lost: under a key it is told once. The error says when it is not known
// whether it was taken.
func (a *app) submit(ctx context.Context, s *services, request *pollerv1.SubmitRequest) (answer *pollerv1.SubmitResponse, err error) {
	// The address of who was reached is known once the request may have been sent; until then nothing of it can have been taken.
	var reached peer.Peer
	call := func(more ...grpc.CallOption) error {
		return s.poller(ctx, callTime, func(ctx context.Context, c pollerv1.PollerServiceClient) (err error) {
			answer, err = c.Submit(ctx, request, append(more, grpc.Peer(&reached))...)
			return err
		})
	}
	err = call()
	if !errors.Is(err, fault.Unavailable) || reached.Addr == nil || request.GetDryRun() {
		return answer, err
	}
	if fault.ReasonOf(err) != fault.ReasonDeadline && ctx.Err() == nil {
		a.warn("no answer: %s; asking once more", messageOf(err))
		if again := call(grpc.WaitForReady(true)); !errors.Is(again, fault.Unavailable) {
			return answer, again
		}
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		return nil, err
	}
	remedy := "whether it was taken is not known: send it again with --key " + view.Quote(request.GetIdempotencyKey()) + ", and it is told once"
	if f.Remedy != "" {
		remedy += "; " + f.Remedy
	}
	return nil, f.WithRemedy(remedy)
}

func (a *app) sent(answer *pollerv1.SubmitResponse, ref workitem.Ref, o sendOptions) {
	e := answer.GetEntry()
	switch {
	case o.dryRun && answer.GetExisted():
		a.say("this key was used before: sending it would change nothing; it is delivery %s, %s", e.GetDeliveryId(),
			view.LedgerState(e.GetState()))
	case o.dryRun:
		a.say("it could be sent to %s (session %s); nothing was sent", ref, ref.Target())
	case answer.GetExisted():
		a.say("this key was used before: it is delivery %s, %s", e.GetDeliveryId(), view.LedgerState(e.GetState()))
	default:
		a.say("sent to %s as delivery %s", ref, e.GetDeliveryId())
	}
	if !o.dryRun {
		a.say("  muxpost explain %s   says what became of it", e.GetDeliveryId())
	}
}

// readText reads a message, and no more than can be sent.
func readText(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, prompt.MaxText+1))
	if err != nil {
		return "", fault.Wrap(fault.Invalid, fault.ReasonBadArgument, "standard input cannot be read", err)
	}
	if len(data) > prompt.MaxText {
		return "", fault.Newf(fault.Invalid, fault.ReasonTextTooLarge,
			"the text on standard input is larger than the limit of %d bytes", prompt.MaxText).
			WithRemedy("shorten it, or put it into a file and send a message that names the file")
	}
	return string(data), nil
}

// await follows an event until it ends. Only a delivery is a success.
func (a *app) await(ctx context.Context, s *services, e *pollerv1.LedgerEntry, timeout time.Duration) error {
	fmt.Fprintf(a.stderr, "delivery %s\n", e.GetDeliveryId()) //nolint:errcheck // Progress only.
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	last, away := "", false
	for waits(e.GetState()) {
		if line := waitLine(e); line != last {
			a.warn("  %s", line)
			last = line
		}
		timer := time.NewTimer(waitPause)
		select {
		case <-timer.C:
		case <-waiting.Done():
			timer.Stop()
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted while it is still %s; it stays in the ledger and goes on by itself (muxpost explain %s)",
					waitLine(e), e.GetDeliveryId())
			}
			return fmt.Errorf("after %v it is still %s; it stays in the ledger and goes on by itself (muxpost explain %s)",
				timeout, waitLine(e), e.GetDeliveryId())
		}
		next, err := s.entry(waiting, e.GetDeliveryId())
		switch {
		case waiting.Err() != nil || err == nil && next == nil:
		case err != nil && fault.KindOf(err) != fault.Unavailable:
			return err
		case err != nil && !away:
			a.warn("  the poller does not answer; waiting for it")
		case err == nil:
			e = next
		}
		away = err != nil
	}
	if a.json {
		if err := view.JSON(a.stdout, e); err != nil {
			return err
		}
	} else {
		p := a.printer()
		word := view.LedgerState(e.GetState())
		p.Line("%s  %s", p.Paint(view.ToneOf(word), word+s.how(ctx, e)), view.Clean(e.GetDetail()))
	}
	if e.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED {
		return fmt.Errorf("it was not delivered: %s (muxpost explain %s says more)", waitLine(e), e.GetDeliveryId())
	}
	return nil
}

// how says by which way a delivered event got into its conversation, as far as that can be told.
func (s *services) how(ctx context.Context, e *pollerv1.LedgerEntry) string {
	if e.GetState() != pollerv1.LedgerState_LEDGER_STATE_DELIVERED {
		return ""
	}
	how := ""
	err := s.dispatcher(ctx, func(ctx context.Context, c dispatcherv1.DispatcherServiceClient) error {
		answer, err := c.GetDelivery(ctx, &dispatcherv1.GetDeliveryRequest{DeliveryId: e.GetDeliveryId()})
		if text := view.How(answer.GetDelivery().GetHow()); text != "" {
			how = " " + text
		}
		return err
	})
	if err != nil {
		return "" // that it was delivered is what counts
	}
	return how
}

func waits(s pollerv1.LedgerState) bool { return view.Waits(s) }

func waitLine(e *pollerv1.LedgerEntry) string { return view.WaitLine(e) }

func badDeliveryID(id string) error {
	if session.ValidDeliveryID(id) {
		return nil
	}
	return fault.Newf(fault.Invalid, fault.ReasonBadDeliveryID, "%q is not a delivery id", view.Clip(id, 70)).
		WithRemedy("copy it from muxpost ledger: 8 to 64 characters of a-z, 0-9, - and _")
}
