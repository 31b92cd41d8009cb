package main

import (
	"context"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/rpc"
	"muxpost.dev/muxpost/internal/run"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/poller/internal/github"
	"muxpost.dev/muxpost/services/poller/internal/hook"
	"muxpost.dev/muxpost/services/poller/internal/webhook"
)

// weakSecret is the length below which a secret is not one that GitHub's own advice would make.
const weakSecret = 16

// hooks are the parts that receive webhooks and handle them.
type hooks struct {
	receiver *webhook.Receiver
	handler  *hook.Handler
	address  string
}

// receive makes what takes webhooks, where a source has any. It refuses to without their secrets.
func (p *parts) receive(c settings.Poller) error {
	readers, off := map[string]hook.Reader{}, []string{}
	config := webhook.Config{Open: github.OpenPayload, MaxBody: int64(c.Webhook.MaxBodyMiB) << 20, Logger: p.telemetry.Logger,
		Metrics: p.metrics}
	for i, s := range c.Sources {
		if !s.Webhook {
			off = append(off, s.Name)
			continue
		}
		secrets, err := webhook.NewSecrets(s.WebhookSecretFile, s.WebhookSecrets)
		if err != nil {
			return fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the secret of the webhooks of the source "+s.Name, err)
		}
		if secrets.Shortest() < weakSecret {
			p.telemetry.Logger.Warn("the secret of the webhooks is short enough to be guessed: make one of 32 random bytes", obs.KeySource, s.Name)
		}
		readers[s.Name] = p.sources[i]
		config.Sources = append(config.Sources, webhook.Source{Name: s.Name, Repositories: s.Repositories, Secrets: secrets})
	}
	wake := make(chan struct{}, 1)
	config.Intake = hook.NewIntake(p.store, wake)
	p.hooks = hooks{address: c.Webhook.Listen, handler: hook.NewHandler(hook.Config{
		Inbox: p.store, Taker: p.poller, Readers: readers, Off: off, Wake: wake, Logger: p.telemetry.Logger, Tracer: p.telemetry.Tracer(section),
		Metrics: p.metrics,
	})}
	if len(readers) > 0 {
		p.hooks.receiver = webhook.New(config)
	}
	return nil
}

// join adds to the group what webhooks need, where a source has any.
func (h hooks) join(ctx context.Context, group *run.Group, p *parts) error {
	// Also without webhooks it is written down that there are none from now on.
	group.Add("hooks", h.handler.Run)
	if h.receiver == nil {
		return nil
	}
	listener, err := rpc.ListenSigned(h.address)
	if err != nil {
		return err
	}
	p.telemetry.Logger.InfoContext(ctx, "receiving webhooks", obs.KeyAddress, listener.Addr().String())
	group.Add("webhooks", func(ctx context.Context) error { return h.receiver.Serve(ctx, listener) })
	group.Add("webhooks report", h.receiver.Report)
	return nil
}
