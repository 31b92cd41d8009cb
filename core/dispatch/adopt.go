package dispatch

// AdoptStep is what is done about a person's order to record a session of ours that the record lacks.
type AdoptStep uint8

// The steps. The zero value is the harmless one.
const (
	// AdoptWait: nobody answered, so nothing is known to be ours.
	AdoptWait AdoptStep = iota
	// AdoptRecord: it is recorded, because its stamp, or what its host knows of it, proves it ours.
	AdoptRecord
	// AdoptAlready: it is what the record has.
	AdoptAlready
	// AdoptForeign: what lives under the name is not ours.
	AdoptForeign
	// AdoptDetached: its agent lives without its session, so there is nothing to talk to.
	AdoptDetached
	// AdoptNone: there is no session, and its host knows no conversation of it.
	AdoptNone
)

// AdoptOf says what is done, given whether a session is recorded, what a probe found, whether that is the recorded incarnation, and whether
// the host knows the conversation of one that is dead or absent. It is total.
func AdoptOf(recorded bool, p Probe, same, hostKnows bool) AdoptStep {
	switch p {
	case ProbeLive:
		if recorded && same {
			return AdoptAlready
		}
		return AdoptRecord
	case ProbeDead, ProbeAbsent:
		switch {
		case recorded:
			return AdoptAlready
		case hostKnows:
			return AdoptRecord
		}
		return AdoptNone
	case ProbeForeign, ProbeGuests:
		return AdoptForeign
	case ProbeDetached:
		return AdoptDetached
	case ProbeNowhere:
		return AdoptNone
	case ProbeNotAsked, ProbeUnreachable, ProbeUnknown:
	}
	return AdoptWait
}
