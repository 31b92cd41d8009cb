// Package arch holds the boundaries of the code as a table that a test enforces: who may import whom, and why. It parses the files
// itself, so that the answer is never taken from a cache.
//
// It knows nothing of what the packages do.
package arch

import "strings"

// module is the path of the root module; proto is a module of its own below it.
const module = "muxpost.dev/muxpost/"

// Rule forbids imports to the packages that it is about.
type Rule struct {
	// From are the packages it is about, by path below the module; a trailing /... means all below.
	From []string
	// Except are packages that From names and the rule is not about.
	Except []string
	// Deny are imports that are forbidden; a trailing /... means all below, and "external" everything outside the standard library
	// and this module.
	Deny []string
	// Allow are imports that Deny names and that are allowed all the same.
	Allow []string
	// Why is the reason, for whoever meets the rule.
	Why string
}

var verbs = []string{
	"services/tmuxd/internal/host", "services/tmuxd/internal/attempt", "services/dispatcher/internal/deliver", "services/dispatcher/internal/team", "services/poller/internal/poll",
	"services/poller/internal/forward", "services/poller/internal/rearm", "services/poller/internal/notify", "services/poller/internal/hook",
}

// Rules is the table.
func Rules() []Rule {
	rules := []Rule{
		{From: []string{"core/..."}, Deny: []string{"external", module + "...", "os", "os/exec", "net", "net/http", "io/fs", "syscall",
			"database/sql", "log", "log/slog", "context"}, Allow: []string{module + "core/..."},
			Why: "core holds rules: a decision is a value before it is an effect"},
		{From: []string{"proto/..."}, Deny: []string{module + "..."}, Allow: []string{module + "proto/..."},
			Why: "the contract is a module of its own, for whoever wants to speak to us"},
		{From: []string{"internal/wrapper", "cmd/muxpost-exec"}, Deny: []string{"external", module + "..."},
			Allow: []string{module + "internal/wrapper"}, Why: "every agent carries a wrapper in memory: the standard library alone"},
		{From: []string{"internal/..."}, Deny: []string{module + "services/...", module + "cmd/...", module + "db/...", module + "test/...",
			module + "proto/..."}, Why: "plumbing knows no rule and no service"},
		{From: []string{"db/..."}, Deny: []string{module + "services/...", module + "cmd/...", module + "test/...", module + "proto/..."},
			Why: "the database's plumbing knows no service"},
		{From: verbs, Deny: []string{module + "proto/...", module + "db/...", module + "internal/...", "github.com/jackc/...",
			"google.golang.org/...", "connectrpc.com/...", "github.com/google/go-github/...", "github.com/riverqueue/...", "os/exec",
			"net/http", "database/sql"}, Allow: []string{module + "internal/obs", module + "internal/failpoint"},
			Why: "a verb says what is done, and reaches the world through interfaces that its edges implement"},
		{From: []string{"services/tmuxd/internal/host"}, Deny: []string{module + "services/tmuxd/internal/attempt"},
			Why: "sessions know nothing of attempts"},
		{From: []string{"services/tmuxd/internal/attempt"}, Deny: []string{module + "services/tmuxd/internal/host"},
			Why: "attempts know nothing of sessions"},
		{From: []string{"services/tmuxd/internal/harness"}, Deny: []string{"external", module + "...", "os", "os/exec", "net/http"},
			Allow: []string{module + "core/...", module + "internal/settings"}, Why: "the harness table is data and reading"},
		{From: []string{"services/tmuxd/..."}, Deny: []string{"github.com/jackc/...", "github.com/pressly/...", "github.com/riverqueue/...",
			"github.com/google/go-github/...", module + "db/..."}, Why: "tmuxd runs on other people's machines: no database, no GitHub in it"},
		{From: []string{"..."}, Except: []string{"internal/obs/scrape", "internal/obs/obstest"}, Deny: []string{"github.com/prometheus/..."},
			Why: "Prometheus is one reader of our metrics: its page is in one place, and what is not a test does not parse its language"},
		{From: []string{"services/tmuxd/..."}, Deny: []string{module + "internal/obs/scrape"}, Why: "tmuxd has no HTTP: its metrics go by OTLP"},
		{From: []string{"..."}, Deny: []string{"github.com/bufbuild/connect-go", "connectrpc.com/connect", "connectrpc.com/grpchealth"},
			Why: "connect v2 succeeded these"},
		{From: []string{"cmd/muxpost/internal/console"}, Deny: []string{"text/template", "os", "os/exec", "google.golang.org/grpc/...", module + "db/...",
			module + "internal/...", module + "cmd/muxpost/internal/stack"}, Allow: []string{module + "internal/rpc"},
			Why: "a page is escaped by html/template, and asks through the command's clients: no address, credential, file or program is known there"},
		{From: []string{"core/...", "db/...", "internal/...", "services/...", "cmd/..."}, Deny: []string{module + "test/..."},
			Why: "the product does not stand on its tests"},
	}
	for _, service := range []string{"tmuxd", "dispatcher", "poller"} {
		rules = append(rules, Rule{From: []string{"services/" + service + "/..."}, Deny: []string{module + "services/..."},
			Allow: []string{module + "services/" + service + "/..."}, Why: "services talk over the wire"})
	}
	return append(rules, edges()...)
}

// edges keeps the edges of a service apart: each speaks one technology, and they meet in main.
func edges() []Rule {
	var rules []Rule
	for _, service := range []struct {
		name  string
		edges []string
	}{
		{"tmuxd", []string{"server", "tmux", "disk", "channel"}},
		{"dispatcher", []string{"server", "hosts", "store"}},
		{"poller", []string{"server", "github", "store", "dispatch", "schedule", "webhook"}},
	} {
		dir := "services/" + service.name + "/internal/"
		names := service.edges
		for _, name := range names {
			r := Rule{From: []string{dir + name}, Why: "edges never import each other: they meet in main"}
			for _, other := range names {
				if other != name {
					r.Deny = append(r.Deny, module+dir+other)
				}
			}
			rules = append(rules, r)
		}
	}
	return rules
}

// about reports whether the rule is about a package.
func (r Rule) about(pkg string) bool { return matches(r.From, pkg) && !matches(r.Except, pkg) }

// denies reports whether the rule forbids an import.
func (r Rule) denies(path string) bool {
	if matches(r.Allow, path) {
		return false
	}
	for _, d := range r.Deny {
		if d == "external" && isExternal(path) {
			return true
		}
	}
	return matches(r.Deny, path)
}

func isExternal(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return strings.Contains(first, ".") && !strings.HasPrefix(path+"/", module)
}

func matches(patterns []string, path string) bool {
	for _, p := range patterns {
		if prefix, ok := strings.CutSuffix(p, "..."); ok && strings.HasPrefix(path+"/", prefix) || p == path {
			return true
		}
	}
	return false
}
