package fakegithub

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// pages are for people who follow an html_url. html/template escapes whatever was written into an issue.
var pages = template.Must(template.New("").Parse(`{{define "head"}}<!DOCTYPE html><html lang="en">
<head><meta charset="utf-8"><title>{{.}}</title><style>
body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}article{border:1px solid #ccc;border-radius:6px;margin:1em 0}
article:target{border-color:#06c}header{background:#f4f4f4;padding:.4em 1em}pre{white-space:pre-wrap;overflow-wrap:anywhere;padding:0 1em}
.tag{border:1px solid #999;border-radius:1em;padding:0 .6em}</style></head><body>{{end}}
{{define "note"}}<header>{{with .About}}<code>{{.}}</code> {{end}}<b>{{.Author}}</b> <span class="tag">{{.Association}}</span>
{{.Created}}{{if ne .Created .Updated}} · edited {{.Updated}}{{end}}</header>
<pre>{{.Body}}</pre>
{{with .Reactions}}<p>&emsp;{{range .}}<span class="tag" title="{{.User}}">{{.Content}}</span> {{end}}</p>{{end}}{{end}}
{{define "issue"}}{{template "head" .Title}}
<p><a href="/">fakegithub</a> / {{.Repo}}</p><h1>{{.Title}} #{{.Number}}</h1>
<p><span class="tag">{{.State}}</span>{{range .Labels}} <span class="tag">{{.}}</span>{{end}}</p>
<article>{{template "note" .Opening}}</article>
{{range .Comments}}<article id="{{.Anchor}}">{{template "note" .}}</article>{{end}}</body></html>{{end}}
{{define "index"}}{{template "head" "fakegithub"}}<h1>fakegithub</h1>{{range .}}<h2>{{.Name}}</h2><ul>{{range .Issues}}
<li><a href="{{.Link}}">#{{.Number}} {{.Title}}</a> ({{.State}}, {{.Comments}} comments)</li>{{end}}</ul>{{end}}</body></html>{{end}}`))

type pageNote struct {
	Anchor, Author, Association, Body, Created, Updated string
	// About is the state of a review, or the place of a comment on the diff.
	About     string
	Reactions []Reaction
}

type pageIssue struct {
	Repo, Link, Title, State string
	Number                   int
	Labels                   []string
	Opening                  pageNote
	Comments                 []pageNote
}

// servePage shows /, /{owner}/{repo}/issues/{n} and …/pull/{n} of public repositories.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request, segments []string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "pages can only be read; write through the API", http.StatusMethodNotAllowed)
		return
	}
	name, data := "index", any(nil)
	if r.URL.Path == "/" {
		data = s.indexPage()
	} else {
		page, found := s.issuePage(segments)
		if !found {
			http.NotFound(w, r)
			return
		}
		if page.Link != r.URL.Path { // another case, or a pull request under issues
			http.Redirect(w, r, page.Link, http.StatusFound)
			return
		}
		name, data = "issue", page
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_ = pages.ExecuteTemplate(w, name, data) // fails only when the client went away
}

func (s *Server) issuePage(segments []string) (pageIssue, bool) {
	if len(segments) != 4 || segments[2] != "issues" && segments[2] != "pull" {
		return pageIssue{}, false
	}
	number, err := strconv.Atoi(segments[3])
	s.mu.Lock()
	defer s.mu.Unlock()
	is, missing := s.findIssue(segments[0], segments[1], number)
	if err != nil || missing != nil || is.repo.Private {
		return pageIssue{}, false
	}
	copied := is.snapshot()
	out := pageIssue{
		Repo: is.repo.Owner + "/" + is.repo.Name, Link: is.pagePath(), Number: is.Number, Title: is.Title, State: is.State, Labels: copied.Labels,
		Opening: note(is.repo, Comment{Author: is.Author, Body: cmp.Or(is.Body, "No description."),
			CreatedAt: is.CreatedAt, UpdatedAt: is.CreatedAt, Reactions: copied.Reactions}),
	}
	for _, c := range copied.Comments {
		out.Comments = append(out.Comments, note(is.repo, c))
	}
	for _, rv := range is.reviews {
		if rv.State != Pending {
			out.Comments = append(out.Comments, reviewNotes(rv)...)
		}
	}
	return out, true
}

// reviewNotes shows a review with the comments on the diff that belong to it.
func reviewNotes(rv *review) []pageNote {
	r := rv.issue.repo
	about := note(r, Comment{Author: rv.Author, Body: rv.Body, CreatedAt: rv.SubmittedAt, UpdatedAt: rv.SubmittedAt})
	about.Anchor, about.About = fmt.Sprintf("pullrequestreview-%d", rv.ID), rv.State
	out := []pageNote{about}
	for _, n := range rv.snapshot().Comments {
		shown := note(r, Comment{Author: n.Author, Body: n.Body, CreatedAt: n.CreatedAt, UpdatedAt: n.UpdatedAt, Reactions: n.Reactions})
		shown.Anchor, shown.About = fmt.Sprintf("discussion_r%d", n.ID), fmt.Sprintf("%s:%d", n.Path, n.Line)
		out = append(out, shown)
	}
	return out
}

func note(r *repo, c Comment) pageNote {
	const layout = "2006-01-02 15:04:05 UTC"
	return pageNote{Anchor: fmt.Sprintf("issuecomment-%d", c.ID), Author: c.Author, Association: r.association(c.Author), Body: c.Body,
		Created: c.CreatedAt.Format(layout), Updated: c.UpdatedAt.Format(layout), Reactions: c.Reactions}
}

type indexRepo struct {
	Name   string
	Issues []indexIssue
}

type indexIssue struct {
	Link, Title, State string
	Number, Comments   int
}

func (s *Server) indexPage() []indexRepo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []indexRepo
	for _, key := range slices.Sorted(maps.Keys(s.repos)) {
		r := s.repos[key]
		if r.Private {
			continue
		}
		listed := indexRepo{Name: r.Owner + "/" + r.Name}
		for _, is := range slices.Backward(r.issues) {
			listed.Issues = append(listed.Issues, indexIssue{is.pagePath(), is.Title, is.State, is.Number, len(is.comments)})
		}
		out = append(out, listed)
	}
	return out
}
