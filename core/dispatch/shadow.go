package dispatch

// rehearse is Decide in shadow mode: it looks up and probes, and in place of anything that would act on a host, on the registry or
// on the event's fate it finishes as waiting and says what was withheld. What needs no act is decided as ever: silence waits, and
// what the agent's own record says that it took is delivered.
func rehearse(f Facts) Decision {
	f.Shadow = false
	out := finish(Waiting, ReasonShadow)
	for {
		d := decide(f)
		switch d.Action {
		case LookUp, ProbeHost:
			return d
		case Adopt, Heal, Register:
			// A record is told about and the rest decided as if it stood, so that the act which it is for is told about too.
			out.Withheld = append(out.Withheld, d)
			f = f.WithRecord()
			continue
		case CountDeaths:
			// Counting is a record too, and one of no interest: what follows is told as if nothing spoke against a start.
			f.Starts = StartsAllowed
			continue
		case Park, Unpark: // never: they follow a count
		case Finish:
			if len(out.Withheld) == 0 && (d.Outcome == Waiting || d.Outcome == Delivered) {
				return d
			}
		case SpawnResume, SpawnFresh, PasteText:
		}
		out.Withheld = append(out.Withheld, d)
		return out
	}
}
