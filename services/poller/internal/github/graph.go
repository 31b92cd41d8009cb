package github

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/services/poller/internal/poll"
)

var _ poll.Graph = (*Client)(nil)

const (
	// nodesAtOnce is how many nodes one query may name.
	nodesAtOnce = 100
	// maxNodes bounds what is remembered of which node belongs to whom.
	maxNodes = 100_000
	// botSuffix ends the login of an app's account, in REST alone.
	botSuffix = "[bot]"

	nodesQuery = `query($ids:[ID!]!){ nodes(ids:$ids){ __typename ... on Node{id} ... on Comment{ editor{login __typename} lastEditedAt } ` +
		`... on PullRequestReview{ body } ... on PullRequest{ closingIssuesReferences(first:50){ nodes{ id number repository{ nameWithOwner } } } } } }`
	// The latest hundred labellings hold that of every label that was just put on.
	labelledQuery = `query($ids:[ID!]!){ nodes(ids:$ids){ __typename ... on Node{id} ... on Issue{ labels(first:100){ nodes{ name } } ` +
		`timelineItems(itemTypes:[LABELED_EVENT], last:100){ nodes{ ... on LabeledEvent{ id createdAt actor{login __typename} label{name} } } } } } }`
)

// node is what the queries tell.
type node struct {
	ID       string     `json:"id"`
	EditedAt *time.Time `json:"lastEditedAt"`
	Editor   *actor     `json:"editor"`
	// Body is a review's.
	Body   *string `json:"body"`
	Closes struct {
		Nodes []struct {
			Number     int `json:"number"`
			Repository struct {
				Name string `json:"nameWithOwner"`
			} `json:"repository"`
		} `json:"nodes"`
	} `json:"closingIssuesReferences"`
	Labels struct {
		Nodes []named `json:"nodes"`
	} `json:"labels"`
	Timeline struct {
		Nodes []struct {
			ID    string    `json:"id"`
			At    time.Time `json:"createdAt"`
			Actor *actor    `json:"actor"`
			Label named     `json:"label"`
		} `json:"nodes"`
	} `json:"timelineItems"`
}

type named struct {
	Name string `json:"name"`
}

// actor is an account, nil for one that is gone.
type actor struct {
	Login string `json:"login"`
	Type  string `json:"__typename"`
}

// Edits returns how posts, items or pull requests were last edited. What was never edited and is no review, or is gone, is not among them.
func (c *Client) Edits(ctx context.Context, nodeIDs []string) (map[string]poll.Edit, error) {
	out := map[string]poll.Edit{}
	for _, batch := range c.nodes.batches(nodeIDs) {
		found, err := c.query(ctx, nodesQuery, batch.repository, batch.ids)
		if err != nil {
			return nil, err
		}
		for _, n := range found {
			edit := poll.Edit{Edited: n.Editor != nil || n.EditedAt != nil, Editor: n.Editor.author(), Body: n.Body}
			if !edit.Edited && edit.Body == nil {
				continue
			}
			if n.EditedAt != nil {
				edit.At = n.EditedAt.UTC()
			}
			out[n.ID] = edit
		}
	}
	return out, nil
}

// Labelled returns who put each of the labels last on an issue, in the order of that. What it does not have now, or nobody can say of, is left out.
func (c *Client) Labelled(ctx context.Context, nodeID string, labels []string) (out []poll.Labelling, err error) {
	found, err := c.query(ctx, labelledQuery, c.nodes.repository(nodeID), []string{nodeID})
	if err != nil {
		return nil, err
	}
	for _, n := range found {
		for _, label := range labels {
			if !slices.ContainsFunc(n.Labels.Nodes, func(l named) bool { return strings.EqualFold(l.Name, label) }) {
				continue
			}
			for _, e := range slices.Backward(n.Timeline.Nodes) {
				if e.ID != "" && strings.EqualFold(e.Label.Name, label) {
					out = append(out, poll.Labelling{Label: label, NodeID: e.ID, Author: e.Actor.author(), At: e.At})
					break
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b poll.Labelling) int { return a.At.Compare(b.At) })
	return out, nil
}

// author returns the account, with an empty login for one that is gone.
func (a *actor) author() poll.Author {
	if a == nil {
		return poll.Author{}
	}
	author := poll.Author{Login: a.Login, Machine: a.Type == typeBot}
	if author.Machine && !strings.HasSuffix(author.Login, botSuffix) {
		author.Login += botSuffix
	}
	return author
}

// Closes returns the issues that a pull request closes, on this host.
func (c *Client) Closes(ctx context.Context, nodeID string) ([]workitem.Ref, error) {
	found, err := c.query(ctx, nodesQuery, c.nodes.repository(nodeID), []string{nodeID})
	if err != nil {
		return nil, err
	}
	var out []workitem.Ref
	for _, n := range found {
		for _, issue := range n.Closes.Nodes {
			ref, err := refOf(c.host, issue.Repository.Name, issue.Number)
			if err != nil {
				return nil, c.odd(issue.Repository.Name, "an issue", err)
			}
			out = append(out, ref)
		}
	}
	return out, nil
}

// HasBranch reports whether a repository has a branch of that name: an older name of a branch is none.
func (c *Client) HasBranch(ctx context.Context, repository, branch string) (bool, error) {
	if branch == "" || strings.Contains(branch, "..") { // git takes neither, and an address must not
		return false, nil
	}
	var found struct {
		Name string `json:"name"`
	}
	err := c.one(ctx, repository, "branches/"+url.PathEscape(branch), &found)
	if errors.Is(err, fault.NotFound) {
		return false, nil
	}
	return err == nil && found.Name == branch, err
}

// self is the account that a token acts as.
type self struct {
	mu           sync.Mutex
	token, login string
	known        bool
}

// Self returns the login that the credential acts as; empty when there is none, or when it may not say so, as the token of an installation
// in a token_file.
func (c *Client) Self(ctx context.Context) (string, error) {
	login, known, err := c.transport.credential.login(ctx)
	if known || err != nil {
		return login, err
	}
	token, _, err := c.transport.credential.token(ctx, "")
	if err != nil {
		return "", err
	}
	c.self.mu.Lock()
	defer c.self.mu.Unlock()
	if c.self.known && c.self.token == token {
		return c.self.login, nil
	}
	var user struct {
		Login string `json:"login"`
	}
	if _, err := c.get(ctx, "", "user", &user); err != nil && !forbidden(err) {
		return "", err
	}
	c.self.token, c.self.login, c.self.known = token, user.Login, true
	return user.Login, nil
}

// forbidden reports whether a token is good and may not do something.
func forbidden(err error) bool { return errors.Is(err, errForbidden) }

// graphError is one of a query's errors. A path that begins with nodes is about one node.
type graphError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Path    []any  `json:"path"`
}

func (e graphError) aboutNode() bool { return len(e.Path) > 1 && e.Path[0] == "nodes" }

// query asks for nodes. One that is gone, or that may not be seen, is left out.
func (c *Client) query(ctx context.Context, query, repository string, ids []string) ([]node, error) {
	asking, cancel := context.WithTimeout(about(ctx, repository), c.timeout)
	defer cancel()
	body, err := json.Marshal(map[string]any{"query": query, "variables": map[string]any{"ids": ids}})
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot write a query", err)
	}
	request, err := http.NewRequestWithContext(asking, http.MethodPost, graphOf(c.base).String(), bytes.NewReader(body))
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot write a query", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", userAgent())
	subject := "the editors, links and labels of what was written"
	response, err := c.api.BareDo(request)
	if err != nil {
		return nil, c.failed(ctx, subject, response, err)
	}
	defer func() { _ = response.Body.Close() }() // it was read to its end, or is given up
	var answer struct {
		Data struct {
			Nodes []*node `json:"nodes"`
		} `json:"data"`
		Errors []graphError `json:"errors"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, c.transport.unreadable(ctx, subject, err)
	}
	if err := c.graphFault(response.Header, answer.Errors); err != nil {
		return nil, err
	}
	var out []node
	for _, n := range answer.Data.Nodes {
		if n != nil && n.ID != "" {
			out = append(out, *n)
		}
	}
	return out, nil
}

// graphFault returns the fault of a query as a whole, or nil.
func (c *Client) graphFault(header http.Header, errs []graphError) error {
	for _, e := range errs {
		switch {
		case e.Type == "RATE_LIMITED" || e.Type == "RATE_LIMIT":
			wait := time.Duration(0)
			if text := header.Get("Retry-After"); text != "" {
				wait = retryAfter(text, header)
			} else if header.Get("X-Ratelimit-Remaining") == "0" {
				wait = untilReset(header)
			}
			return limitFault(c.base.Host, "GraphQL", wait)
		case e.aboutNode():
		case e.Type == "FORBIDDEN" || e.Type == "INSUFFICIENT_SCOPES" || e.Type == "NOT_FOUND":
			return fault.Newf(fault.Denied, fault.ReasonSourceRefused, "%s refuses a query: the token lacks a permission", c.base.Host).
				WithRemedy("give the token read access to issues and pull requests")
		default:
			return fault.Newf(fault.Unavailable, fault.ReasonSourceUnreachable, "%s does not answer a query (%s)", c.base.Host, cmp.Or(e.Type, "no type"))
		}
	}
	return nil
}

// graphOf returns where queries go: beside the version on a server of one's own, and below the API elsewhere.
func graphOf(base *url.URL) *url.URL {
	if before, ok := strings.CutSuffix(base.Path, "/v3/"); ok {
		out := *base
		out.Path = before + "/graphql"
		return &out
	}
	return base.JoinPath("graphql")
}

// nodes remembers in which repository nodes were seen: a query does not say whose token it needs. Where there is one token for all,
// nothing is remembered.
type nodes struct {
	apart bool

	mu  sync.Mutex
	all map[string]string
}

// remember keeps where a node was seen.
func (c *Client) remember(repository, nodeID string) {
	if !c.nodes.apart {
		return
	}
	c.nodes.mu.Lock()
	defer c.nodes.mu.Unlock()
	if c.nodes.all == nil || len(c.nodes.all) >= maxNodes {
		c.nodes.all = map[string]string{}
	}
	c.nodes.all[nodeID] = repository
}

func (n *nodes) repository(id string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[id]
}

// batch is a query's worth of nodes of one owner.
type batch struct {
	repository string
	ids        []string
}

// batches groups nodes by owner, each group cut to what one query may name.
func (n *nodes) batches(ids []string) (out []batch) {
	groups, first := map[string][]string{}, map[string]string{}
	var owners []string
	for _, id := range ids {
		repository := n.repository(id)
		owner := ownerOf(repository)
		if _, ok := groups[owner]; !ok {
			owners, first[owner] = append(owners, owner), repository
		}
		groups[owner] = append(groups[owner], id)
	}
	for _, owner := range owners {
		for ids := range slices.Chunk(groups[owner], nodesAtOnce) {
			out = append(out, batch{first[owner], ids})
		}
	}
	return out
}
