// Package webhook receives GitHub's webhooks over HTTP.
//
// It is the one place of ours that may be reached by anybody, so it believes nothing before it has checked the signature, over the body
// byte by byte as it came, and it answers everybody who has none with the same words. Every wait, every size and the number of requests
// at once has a bound. What is signed and wanted is answered with success only once it has been written down for good.
//
// It knows nothing of what becomes of a message, of SQL, nor of what a payload means beyond its envelope. It never logs a payload, a
// secret, or anything that whoever is not known has sent.
package webhook
