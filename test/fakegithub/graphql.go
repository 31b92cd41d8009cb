package fakegithub

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	resourceCore    = "core"
	resourceGraphQL = "graphql"
	maxNodes        = 100
)

var graphqlRoutes = []route{{"POST", "graphql", (*call).graphql}}

// The one shape of a query that is understood: nodes by their ids. Of each node it gives the fields whose names the query holds.
var (
	nodesQuery = regexp.MustCompile(`^\s*query\s*\w*\s*\(\s*\$(\w+)\s*:\s*\[\s*ID!\s*\]!\s*\)\s*\{\s*nodes\s*\(\s*ids\s*:\s*\$(\w+)\s*\)\s*(\{[\s\S]*\})\s*\}\s*$`)
	names      = regexp.MustCompile(`\w+`)
	firstN     = regexp.MustCompile(`closingIssuesReferences\s*\(\s*first\s*:\s*(\d+)\s*\)`)
)

// known are the names that may stand in a selection: fields, arguments and types.
var known = []string{"__typename", "on", "id", "editor", "login", "lastEditedAt", "body", "closingIssuesReferences", "first", "nodes", "totalCount", "number",
	"repository", "nameWithOwner", "Node", "Comment", "PullRequest", "Issue", "IssueComment", "PullRequestReview", "PullRequestReviewComment",
	"labels", "name", "timelineItems", "itemTypes", "LABELED_EVENT", "last", "LabeledEvent", "createdAt", "actor", "label"}

type graphqlRequest struct {
	Query     string
	Variables map[string]any
}

// graphql follows "Forming calls with GraphQL" and "Rate limits and query limits for the GraphQL API": whatever is wrong with a query, the
// answer is a 200 with errors beside the data, or in its place.
func (c *call) graphql() (reply, error) {
	var in graphqlRequest
	if err := c.decode(&in); err != nil {
		return reply{}, err
	}
	if in.Query == "" {
		return reply{}, &problem{status: http.StatusBadRequest, message: "A query attribute must be specified and must be a string."}
	}
	parts := nodesQuery.FindStringSubmatch(in.Query)
	if parts == nil || parts[1] != parts[2] || strings.Count(parts[3], "{") != strings.Count(parts[3], "}") {
		return queryErrors(object{"message": "Parse error: the only query that is understood here is nodes(ids:$ids)"})
	}
	selected := map[string]bool{}
	for _, name := range names.FindAllString(parts[3], -1) {
		if _, err := strconv.Atoi(name); err != nil && !slices.Contains(known, name) {
			return queryErrors(object{"message": fmt.Sprintf("Field '%s' doesn't exist on type 'Node'", name), "path": []string{"query", "nodes", name},
				"extensions": object{"code": "undefinedField", "typeName": "Node", "fieldName": name}})
		}
		selected[name] = true
	}
	ids, ok := stringsOf(in.Variables[parts[1]])
	if !ok {
		return queryErrors(object{"message": "Variable $" + parts[1] + " of type [ID!]! was provided invalid value"})
	}
	// "Rate limits and query limits for the GraphQL API" limits what one call may ask for; of nodes by id that is 100.
	if len(ids) > maxNodes {
		return queryErrors(object{"type": "ARGUMENT_LIMIT", "path": []string{"nodes"},
			"message": fmt.Sprintf("You may not provide more than %d node ids; you provided %d.", maxNodes, len(ids))})
	}
	first := maxNodes
	if limit := firstN.FindStringSubmatch(parts[3]); limit != nil {
		first, _ = strconv.Atoi(limit[1])
	}
	return c.nodes(ids, selected, first)
}

func queryErrors(errors ...object) (reply, error) {
	return reply{status: http.StatusOK, value: object{"errors": errors}}, nil
}

func stringsOf(value any) ([]string, bool) {
	list, ok := value.([]any)
	out := make([]string, 0, len(list))
	for _, item := range list {
		text, isText := item.(string)
		out, ok = append(out, text), ok && isText
	}
	return out, ok
}

// nodes gives null for what is not there or not for this asker, and says so in an error beside the data.
func (c *call) nodes(ids []string, selected map[string]bool, first int) (reply, error) {
	all, found, missing := c.everyNode(), make([]any, 0, len(ids)), []object{}
	for i, id := range ids {
		n, there := all[id]
		if !there {
			found = append(found, nil)
			missing = append(missing, object{"type": "NOT_FOUND", "path": []any{"nodes", i}, "locations": []object{},
				"message": fmt.Sprintf("Could not resolve to a node with the global id of '%s'", id)})
			continue
		}
		out := object{}
		for name, value := range map[string]func() any{
			"__typename": func() any { return n.kind }, "id": func() any { return id },
			"editor": func() any { return c.editor(n.edited) }, "lastEditedAt": func() any { return orNull(n.edited.LastEditedAt) },
		} {
			if selected[name] {
				out[name] = value()
			}
		}
		if n.review != nil && selected["body"] {
			out["body"] = n.review.Body
		}
		if n.pull != nil && selected["closingIssuesReferences"] {
			out["closingIssuesReferences"] = closingReferences(n.pull, first)
		}
		if n.issue != nil && selected["timelineItems"] {
			out["labels"], out["timelineItems"] = c.labelled(n.issue, maxNodes)
		}
		found = append(found, out)
	}
	value := object{"data": object{"nodes": found}}
	if len(missing) > 0 {
		value["errors"] = missing
	}
	return reply{status: http.StatusOK, value: value}, nil
}

// node is what GraphQL knows of a thing that has a text.
type node struct {
	kind   string
	edited Edited
	pull   *issue
	issue  *issue
	review *review
}

func (c *call) everyNode() map[string]node {
	out := map[string]node{}
	for _, r := range c.s.repos {
		if !c.mayRead(r) {
			continue
		}
		for _, is := range r.issues {
			if is.Pull != nil {
				out[nodeID("PR", r.id, is.ID)] = node{kind: "PullRequest", edited: is.Edited, pull: is}
			} else {
				out[nodeID("I", r.id, is.ID)] = node{kind: "Issue", edited: is.Edited, issue: is}
			}
			for _, n := range is.comments {
				out[nodeID("IC", r.id, n.ID)] = node{kind: "IssueComment", edited: n.Edited}
			}
			for _, rv := range is.reviews {
				if !rv.seenBy(c.user) {
					continue
				}
				out[nodeID("PRR", r.id, rv.ID)] = node{kind: "PullRequestReview", edited: rv.Edited, review: rv}
				for _, n := range rv.comments {
					out[nodeID("PRRC", r.id, n.ID)] = node{kind: "PullRequestReviewComment", edited: n.Edited}
				}
			}
		}
	}
	return out
}

// editor is null for a text that nobody changed. GraphQL names a bot without the [bot] that its login has in REST.
func (c *call) editor(edited Edited) any {
	if edited.Editor == "" {
		return nil
	}
	return c.actor(edited.Editor)
}

func (c *call) actor(login string) object {
	u := c.s.userFor(login)
	return object{"login": strings.TrimSuffix(u.Login, loginBotSuffix), "__typename": u.Type}
}

// labelled gives the labels of an issue, and the latest puttings on of labels.
func (c *call) labelled(is *issue, last int) (labels, timeline object) {
	names, events := []object{}, []object{}
	for _, name := range is.Labels {
		names = append(names, object{"name": name})
	}
	for _, l := range is.labellings[max(0, len(is.labellings)-last):] {
		events = append(events, object{"id": nodeID("LE", is.repo.id, l.id), "createdAt": l.at, "actor": c.actor(l.by), "label": object{"name": l.label}})
	}
	return object{"nodes": names}, object{"nodes": events}
}

func closingReferences(is *issue, first int) object {
	all := is.closes()
	out := make([]object, 0, len(all))
	for _, linked := range all[:min(first, len(all))] {
		out = append(out, object{"id": nodeID("I", linked.repo.id, linked.ID), "number": linked.Number,
			"repository": object{"nameWithOwner": linked.repo.fullName()}})
	}
	return object{"totalCount": len(all), "nodes": out}
}
