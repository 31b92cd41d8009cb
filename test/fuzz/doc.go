// Package fuzz calls every method of every service with whatever comes, and looks whether the service says clearly what is wrong with it, stays
// up, and leaves alone whom nobody named. The services are real processes, with a real Postgres, a real tmux and an agent.
//
//	go test ./test/fuzz -run '^$' -fuzz '^FuzzTmuxd$' -fuzztime 10m
//
// Parsers and encoders have their fuzz tests beside them; `make fuzz` runs these and all of those in turn.
package fuzz
