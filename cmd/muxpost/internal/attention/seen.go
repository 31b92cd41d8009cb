package attention

import (
	"time"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
)

// Seen says who acknowledged an entry, why and when.
func (a Acknowledged) Seen(p view.Printer) string {
	out := "acknowledged"
	if a.Who != "" {
		out += " by " + a.Who
	}
	if a.Reason != "" {
		out += ": " + a.Reason
	}
	at := time.Time{}
	if a.At != nil {
		at = *a.At
	}
	return out + " (" + p.Time(at) + ")"
}
