package dispatch

// EndStep is what is done about an order to end an agent.
type EndStep uint8

// The steps. The zero value is the harmless one.
const (
	// EndWait: nobody answered for the session, so the order stands until somebody does.
	EndWait EndStep = iota
	// EndTerminate: the incarnation that the order names lives, and is ended.
	EndTerminate
	// EndDone: it is proven that it does not live.
	EndDone
	// EndLapse: another incarnation lives than the order names, so the order is over and nothing is touched.
	EndLapse
	// EndRefuse: what lives under the name is not the agent, so the order is over and nothing is touched.
	EndRefuse
)

// EndOf says what is done about an order to end an agent, given what a probe found and whether that is the incarnation that the order
// names. It is total.
func EndOf(p Probe, named bool) EndStep {
	switch p {
	case ProbeLive, ProbeDetached:
		if named {
			return EndTerminate
		}
		return EndLapse
	case ProbeDead, ProbeAbsent:
		return EndDone
	case ProbeForeign, ProbeGuests:
		return EndRefuse
	case ProbeNotAsked, ProbeNowhere, ProbeUnreachable, ProbeUnknown:
	}
	return EndWait
}
