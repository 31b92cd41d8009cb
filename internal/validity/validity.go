// Package validity tells, in the metrics of a service, for how much longer its own certificate is valid: early enough for a person to do
// something about a renewal that did not happen.
//
// It renews nothing, and knows nothing of the certificates of others.
package validity

import (
	"context"
	"time"

	"muxpost.dev/muxpost/internal/identity"
	"muxpost.dev/muxpost/internal/obs"
)

// Observe has a meter of its own tell how long the certificate in these files, as the service uses it, is still valid. Where the service has
// none, nothing is told.
func Observe(meter *obs.Meter, files identity.Files, now func() time.Time) {
	remaining := meter.Gauge("muxpost.certificate.remaining", "s",
		"How much longer the service's own certificate is valid, below 0 once it has ended; absent where it has none. Of several processes take min by.")
	if files.Cert == "" {
		return
	}
	look := files.Looks()
	_, _ = look() // what the service begins with, even if nobody collects for long
	meter.Observe(func(_ context.Context, tell obs.Tell) {
		if v, err := look(); err == nil { // an error is one that the service did not start with either
			tell(remaining, v.Ends.Sub(now()).Seconds())
		}
	}, remaining)
}
