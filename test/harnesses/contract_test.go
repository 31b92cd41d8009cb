package harnesses

import "testing"

func TestHarness_EveryEntryKeepsTheContract(t *testing.T) {
	each(t, func(r *rig) {
		r.started("")
		r.subtest("the first prompt, before it is ready", func() { r.deliver(r.next("as soon as you are there")) })
		for _, s := range situations() {
			r.subtest(s.name, func() { s.meet(r) })
		}
		r.subtest("a conversation that a person began", r.meetAnew)
		r.subtest("a killed program", func() { r.meetDeath(theProgram, false) })
		if r.companion() {
			r.subtest("a killed companion, in a turn", func() { r.meetDeath(theCompanion, true) })
		}
		r.subtest("a program killed with its acknowledgement", r.meetSuddenDeath)
		r.subtest("a killed wrapper, in a turn", func() { r.meetDeath(theWrapper, true) })
		r.subtest("an unknown conversation", r.meetUnknown)
		if f := r.figures(); f.off() {
			r.t.Error(f)
		}
	})
}

// subtest is a part of the contract. The next one needs a program that this one left in order.
func (r *rig) subtest(name string, f func()) {
	whole := r.t
	ok := whole.Run(name, func(t *testing.T) {
		r.t = t
		f()
		r.innocent()
		if got := r.figures(); got.off() {
			t.Error(got)
		}
	})
	if r.t = whole; !ok {
		r.t.FailNow()
	}
}
