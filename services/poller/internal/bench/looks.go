package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"muxpost.dev/muxpost/db"
	"muxpost.dev/muxpost/db/migrations"
	"muxpost.dev/muxpost/internal/wrapper"
)

// The repository that is looked at, and who labels there.
const (
	owner, repo, label, author = "octo", "widget", "muxpost", "alice"
	// looked is for how many looks at least the cost is counted, and page how many items are on one page of the list.
	looked, page = 10, 100
)

const watching = configuration + `  sources:
    - {name: looks, kind: github, base_url: %[3]q, host: github.com, token_file: %[1]s/token, repositories: [octo/widget],
       label: muxpost, authors: [alice], interval: 2s}
`

// cost is what looking at items costs of which none has changed, for each item and look.
type cost struct {
	items             int
	requests, charged float64
	// cpu is the poller's, and bare that of as many conditional requests and nothing else.
	cpu, bare time.Duration
}

// looks measures a poller of its own that watches so many issues on a server that speaks GitHub's API, a process of its own too.
func (s *stage) looks(ctx context.Context, items int) (c cost, err error) {
	dir := filepath.Join(s.dir, fmt.Sprintf("looks%d", items))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return c, err
	}
	upstream, url, err := s.upstream(ctx, dir, items)
	if err != nil {
		return c, err
	}
	defer endProcess(upstream)
	base, pool, err := s.another(ctx, fmt.Sprintf("looks%d", items))
	if err != nil {
		return c, err
	}
	defer pool.Close()
	file := filepath.Join(dir, "muxpost.yaml")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "token"), []byte("token-bot\n"), 0o600),
		os.Symlink(filepath.Join(s.dir, "d.sock"), filepath.Join(dir, "d.sock")),
		os.WriteFile(file, fmt.Appendf(nil, watching, dir, base, url), 0o600)); err != nil {
		return c, err
	}
	poller := exec.Command(filepath.Join(s.dir, "muxpost-poller"), "--config", file) //nolint:noctx // it is ended in order
	poller.Stderr = os.Stderr
	if err := poller.Start(); err != nil {
		return c, err
	}
	defer endProcess(poller)
	// The first looks take in what is there, which are events. Then nothing changes any more.
	if err := seen(ctx, pool, items); err != nil {
		return c, err
	}
	if err := allEnded(ctx, pool); err != nil {
		return c, err
	}
	pages := (items + page - 1) / page
	from, err := after(ctx, url, func(counts) bool { return true })
	if err != nil {
		return c, err
	}
	began := processTime(poller.Process.Pid)
	to, err := after(ctx, url, func(n counts) bool { return n.lists-from.lists >= looked*pages })
	if err != nil {
		return c, err
	}
	used := processTime(poller.Process.Pid) - began
	n := to.lists - from.lists
	each := float64(n) / float64(pages) * float64(items)
	c = cost{items: items, requests: float64(to.requests-from.requests) / each, charged: float64(to.charged-from.charged) / each, cpu: time.Duration(float64(used) / each)}
	whole, err := bare(ctx, url, pages, 50*pages)
	c.bare = whole * time.Duration(pages) / time.Duration(items)
	return c, err
}

// seen waits until the poller has seen so many items.
func seen(ctx context.Context, pool *pgxpool.Pool, items int) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var n int
		err := pool.QueryRow(ctx, "select count(*) from poller.items where baselined_at is not null").Scan(&n)
		if err != nil || n == items {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the poller has seen %d items of %d", n, items)
		}
	}
}

// upstream starts the server, with so many issues.
func (s *stage) upstream(ctx context.Context, dir string, items int) (cmd *exec.Cmd, url string, err error) {
	bin := filepath.Join(s.dir, "fakegithub")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", bin, "muxpost.dev/muxpost/test/fakegithub/cmd/fakegithub").CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("cannot build the server: %w\n%s", err, out)
	}
	issues := make([]map[string]any, items)
	for i := range issues {
		issues[i] = map[string]any{"number": i + 1, "title": fmt.Sprintf("Number %d", i+1), "author": author, "labels": []string{label},
			"created_at": time.Now().Add(-time.Hour)} // what changed a moment ago is looked at more closely
	}
	seed, err := json.Marshal(map[string]any{"tokens": map[string]string{"token-bot": "loopbot"}, "repos": []map[string]any{
		{"owner": owner, "name": repo, "associations": map[string]string{author: "MEMBER"}, "issues": issues}}})
	if err != nil {
		return nil, "", err
	}
	file := filepath.Join(dir, "seed.json")
	if err := os.WriteFile(file, seed, 0o600); err != nil {
		return nil, "", err
	}
	cmd = exec.Command(bin, "-seed", file, "-rate-limit", "100000000") //nolint:noctx // it is ended in order
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		endProcess(cmd)
		return nil, "", fmt.Errorf("the server does not start: %w", err)
	}
	return cmd, strings.TrimSpace(strings.TrimPrefix(line, "fakegithub listening on ")), nil
}

// another makes one more database.
func (s *stage) another(ctx context.Context, name string) (url string, pool *pgxpool.Pool, err error) {
	if _, err := s.pool.Exec(ctx, "create database "+name); err != nil {
		return "", nil, err
	}
	url = s.cluster.URL(name)
	if pool, err = db.Open(ctx, db.Config{URL: url, AppName: "bench"}); err != nil {
		return "", nil, err
	}
	_, err = migrations.Up(ctx, pool, nil)
	return url, pool, err
}

func endProcess(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
}

// counts is what the server was asked for: in all, of the rate limit, and pages of the list of issues.
type counts struct{ requests, charged, lists int }

// after waits until the counts are as they are wanted.
func after(ctx context.Context, url string, wanted func(counts) bool) (now counts, err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var paths map[string]struct{ Requests, Charged int }
		if err := get(ctx, url+"/_fake/counts", &paths); err != nil {
			return now, err
		}
		now = counts{lists: paths["GET /repos/"+owner+"/"+repo+"/issues"].Requests}
		for _, c := range paths {
			now.requests, now.charged = now.requests+c.Requests, now.charged+c.Charged
		}
		if wanted(now) {
			return now, nil
		}
	}
	return now, fmt.Errorf("the poller does not look: %+v", now)
}

func get(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// bare returns what each of n conditional requests for pages of the list costs this process, which does nothing with them.
func bare(ctx context.Context, url string, pages, n int) (time.Duration, error) {
	tags := make([]string, pages)
	ask := func(i int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("%s/repos/%s/%s/issues?per_page=%d&page=%d", url, owner, repo, page, i+1), nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer token-bot")
		request.Header.Set("If-None-Match", tags[i])
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if tags[i] != "" && response.StatusCode != http.StatusNotModified {
			return fmt.Errorf("the server answers %s to what it has answered before", response.Status)
		}
		tags[i] = response.Header.Get("ETag")
		_, err = io.Copy(io.Discard, response.Body)
		return err
	}
	for i := range pages {
		if err := ask(i); err != nil {
			return 0, err
		}
	}
	began := processTime(os.Getpid())
	for i := range n {
		if err := ask(i % pages); err != nil {
			return 0, err
		}
	}
	return (processTime(os.Getpid()) - began) / time.Duration(n), nil
}

// processTime is the processor time that a process has used, in steps of 10 ms.
func processTime(pid int) time.Duration {
	fields, err := wrapper.StatFields(pid)
	if err != nil {
		return 0
	}
	var user, system int64
	_, _ = fmt.Sscan(fields[11], &user)
	_, _ = fmt.Sscan(fields[12], &system)
	return time.Duration(user+system) * 10 * time.Millisecond
}
