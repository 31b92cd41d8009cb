package drill

import (
	"time"

	"muxpost.dev/muxpost/internal/obs"
	"muxpost.dev/muxpost/internal/obs/spanfile"
)

// accounts are what the dispatchers' span files say came of each delivery.
type accounts struct {
	// outcomes holds what each delivery ended as when it was last asked about; "" where no span got as far, as when a process was killed.
	outcomes map[string]string
	// since is when the oldest span began: what is older was removed.
	since time.Time
}

// readAccounts reads the span files of some data directories.
func readAccounts(dirs ...string) (accounts, error) {
	a := accounts{outcomes: map[string]string{}}
	for _, dir := range dirs {
		spans, err := spanfile.Read(obs.TracesDir(dir), func(s spanfile.Span) bool { return s.Name == "deliver.Deliver" })
		if err != nil {
			return a, err
		}
		for _, s := range spans {
			if a.since.IsZero() || s.Start.Before(a.since) {
				a.since = s.Start
			}
			id := s.Attributes[obs.KeyDeliveryID]
			said := a.outcomes[id]
			for _, e := range s.Events {
				if outcome := e.Attributes["outcome"]; outcome != "" && said != "delivered" {
					said = outcome
				}
			}
			a.outcomes[id] = said
		}
	}
	return a, nil
}

// contradict says how the spans contradict that an event was delivered; nothing if they do not.
func (a accounts) contradict(r row) string {
	switch said, ok := a.outcomes[r.DeliveryID]; {
	case !ok && r.FirstAsked.After(a.since):
		return "no span speaks of it"
	case said == "dropped" || said == "unconfirmed":
		return "its trace says " + said
	}
	return ""
}
