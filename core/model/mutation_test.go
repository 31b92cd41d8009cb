package model

import (
	"testing"
	"time"

	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
)

// mutation is a rule that is broken or left out, with the faults that it takes to notice, and the promise that is broken then.
type mutation struct {
	name   string
	change func(*Config)
	limits map[Fault]int
	faults int
	want   string
}

// found checks that a mutation is found.
func (m mutation) found(t *testing.T) {
	t.Helper()
	whole := Config{Core: RealCore(), Rules: AllRules(), Limits: m.limits, Faults: m.faults}
	broken := whole
	m.change(&broken)
	r := Check(broken)
	if r.Broken != m.want || len(r.Trace) == 0 {
		t.Fatalf("want %q, got %v", m.want, r)
	}
	t.Logf("found after %d states, %d steps away", r.States, len(r.Trace))
	if r := Check(whole); r.Broken != "" {
		t.Fatalf("broken without the mutation too: %v", r)
	}
}

func foundAll(t *testing.T, all []mutation) {
	for _, m := range all {
		t.Run(m.name, m.found)
	}
}

// spawnsOnUnknown takes silence for absence wherever it is decided: in the dispatcher and on the host.
func spawnsOnUnknown(c *Config) {
	c.Core.Decide = func(f dispatch.Facts) dispatch.Decision {
		if f.Probe == dispatch.ProbeUnknown {
			f.Probe = dispatch.ProbeAbsent
		}
		return dispatch.Decide(f)
	}
	c.Core.Preflight = func(s session.State, f session.Flags, present bool) session.Step {
		if s == session.Unknown {
			return session.Proceed
		}
		return session.Preflight(s, f, present)
	}
}

func TestChecker_FindsBrokenRulesOfCore(t *testing.T) {
	foundAll(t, []mutation{
		{"a spawn on silence, and a host that does not wait for the old server", func(c *Config) {
			spawnsOnUnknown(c)
			c.Rules.AwaitServer = false
		}, map[Fault]int{Silence: 1}, 1, doubledAgent},
		{"an absence that is not asked of the process", func(c *Config) {
			c.Core.Judge = func(s session.Sight) (session.State, session.Flags, string) {
				s.Wrapper = session.ProcessNone
				return session.Judge(s)
			}
		}, map[Fault]int{ServerDeath: 1}, 1, doubledAgent},
		{"the living taken for the dead, and a guard that does not look", func(c *Config) {
			c.Core.Decide = func(f dispatch.Facts) dispatch.Decision {
				if f.Probe == dispatch.ProbeLive {
					f.Probe = dispatch.ProbeDead
				}
				return dispatch.Decide(f)
			}
			c.Core.Preflight = func(s session.State, f session.Flags, present bool) session.Step {
				if s == session.Live && f == 0 {
					return session.Clear
				}
				return session.Preflight(s, f, present)
			}
			c.Rules.GuardDead = false
		}, nil, 0, killedLive},
		{"a delivery that counts before there is evidence", func(c *Config) {
			c.Core.Decide = func(f dispatch.Facts) dispatch.Decision {
				if f.Paste == dispatch.PasteUnconfirmed {
					f.Paste = dispatch.PasteSubmitted
				}
				return dispatch.Decide(f)
			}
		}, nil, 0, reportedLost},
		{"a hold that nobody looks at again", func(c *Config) {
			c.Core.Apply = applyWith(func(p *ledger.Progress, a ledger.Answer) {
				if a == ledger.Holding {
					p.State = ledger.Leased
				}
			})
		}, nil, 0, stuck},
		{"a parked item that is started all the same", func(c *Config) {
			c.Core.Decide = func(f dispatch.Facts) dispatch.Decision {
				if f.Starts == dispatch.StartsParked {
					f.Starts = dispatch.StartsAllowed
				}
				return dispatch.Decide(f)
			}
		}, map[Fault]int{Deaths: 1}, 1, startedParked},
		{"a give-up without a reason", func(c *Config) {
			c.Core.Apply = applyWith(func(p *ledger.Progress, a ledger.Answer) {
				if a == ledger.Silent {
					p.State, p.Reason = ledger.GaveUp, ""
				}
			})
		}, map[Fault]int{Unreachable: 1}, 1, endedUnsaid},
	})
}

// applyWith is ledger.Apply with a change to what it says.
func applyWith(change func(*ledger.Progress, ledger.Answer)) func(ledger.Progress, ledger.Answer, string, time.Duration, time.Time,
	float64) ledger.Progress {
	return func(p ledger.Progress, a ledger.Answer, reason string, after time.Duration, now time.Time, jitter float64) ledger.Progress {
		out := ledger.Apply(p, a, reason, after, now, jitter)
		change(&out, a)
		return out
	}
}

func TestChecker_FindsRulesOfTheHostThatAreLeftOut(t *testing.T) {
	foundAll(t, []mutation{
		{"no journal", func(c *Config) { c.Rules.Journal = false }, map[Fault]int{AgentDeath: 1}, 1, typedTwice},
		{"no generation, and a guard that ignores phase and composer", func(c *Config) {
			c.Rules.Generation, c.Rules.GuardPhase, c.Rules.GuardDraft = false, false, false
		}, map[Fault]int{ActLate: 1}, 1, typedTwice},
		{"no generation", func(c *Config) { c.Rules.Generation = false }, map[Fault]int{ActLate: 1, AgentDeath: 1}, 2, droppedFree},
		{"no fencing token", func(c *Config) { c.Rules.GuardToken = false }, map[Fault]int{Twice: 1, ServerDeath: 1}, 2, olderToken},
		{"a token that is forgotten with the session", func(c *Config) { c.Rules.RememberToken = false },
			map[Fault]int{Twice: 1, ServerDeath: 1}, 2, olderToken},
		{"no look for dialogs in the guard", func(c *Config) { c.Rules.GuardDialog = false }, map[Fault]int{Dialog: 1}, 1, answeredDialog},
		{"no look at the composer in the guards", func(c *Config) { c.Rules.GuardDraft = false }, map[Fault]int{Person: 1}, 1, typedOver},
		{"no look at the composer at all", func(c *Config) { c.Rules.LookFirst, c.Rules.GuardDraft = false, false },
			map[Fault]int{Person: 1}, 1, typedOver},
		{"no wait for a turn that may have the text", func(c *Config) { c.Rules.WaitBusy = false }, map[Fault]int{Person: 1}, 1, typedTwice},
		{"no evidence asked for a text that was only pasted", func(c *Config) { c.Rules.EvidenceOfPasted = false },
			map[Fault]int{Person: 1, AgentDeath: 1}, 2, typedTwice},
		{"a ring from before the generation was taken over", func(c *Config) { c.Rules.LookAfterOwning = false },
			map[Fault]int{Restore: 1, HostCrash: 1}, 2, stuck},
		{"a harness that was quicker than its wrapper's record", func(c *Config) { c.Rules.RecordFirst = false },
			map[Fault]int{AgentDeath: 1}, 1, typedTwice},
		{"a start from an earlier life of tmuxd", func(c *Config) { c.Rules.RevokeOld = false }, map[Fault]int{HostCrash: 1, ServerDeath: 1}, 2,
			doubledAgent},
		{"remains that hide a living agent", func(c *Config) { c.Rules.AskBoth = false }, map[Fault]int{HostCrash: 1, ServerDeath: 1}, 2,
			typedTwice},
		{"remains whose clearing came to nothing", func(c *Config) { c.Rules.ClearAgain = false },
			map[Fault]int{AgentDeath: 1, ActLate: 1}, 2, droppedFree},
		{"an event that ends while its text stands in the composer", func(c *Config) { c.Rules.HoldStanding = false },
			map[Fault]int{HostCrash: 1, AgentDeath: 1, Swallow: 1, Person: 1}, 4, stuck},
	})
}
