package rpc

import "strings"

const (
	neverReached = "cannot reach"
	broke        = "lost the connection to"
)

// silence finds few words for what a transport said when there was no answer. Nothing but messages depends on them.
func silence(said string) (verb, short string) {
	for _, known := range []struct{ part, verb, short string }{
		{"connection refused", neverReached, "connection refused"},
		{"no such file or directory", neverReached, "no such file"},
		{"permission denied", neverReached, "permission denied"},
		{"no such host", neverReached, "no such host"},
		{"zero addresses", neverReached, "no such host"},
		{"network is unreachable", neverReached, "network is unreachable"},
		{"no route to host", neverReached, "no route to host"},
		{"tls: ", neverReached, "TLS failed"},
		{"x509: ", neverReached, "TLS failed"},
		{"authentication handshake failed", neverReached, "TLS failed"},
		{"timed out", neverReached, "timed out"},
		{"timeout", neverReached, "timed out"},
		{"deadline exceeded", neverReached, "timed out"},
		{"error reading server preface", neverReached, "what answers there speaks another protocol, or hung up"},
		{"Error while dialing", neverReached, "it does not answer"},
		{"connection reset", broke, "connection reset"},
		{"broken pipe", broke, "it hung up"},
		{"EOF", broke, "it hung up"},
		{"closing", broke, "it is stopping"},
		{"draining", broke, "it is stopping"},
	} {
		if strings.Contains(said, known.part) {
			return known.verb, known.short
		}
	}
	return neverReached, "it does not answer"
}
