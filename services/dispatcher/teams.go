package main

import (
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"muxpost.dev/muxpost/core/fault"
	rules "muxpost.dev/muxpost/core/team"
	"muxpost.dev/muxpost/core/workitem"
	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/internal/specfile"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
	"muxpost.dev/muxpost/services/dispatcher/internal/server"
	"muxpost.dev/muxpost/services/dispatcher/internal/team"
)

// policies reads the teams of the configuration, and returns what is run for a work item: the first that matches, and has the name that is
// said, for that item.
func policies(teams []settings.Team) (func(item workitem.Ref, name string) (team.Policy, bool), error) {
	var read []team.Policy
	for _, t := range teams {
		spec, err := teamFile(t.File)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "dispatcher.teams: "+t.File+" cannot be read as a team", err).
				WithRemedy("docs/teams.md has every key; muxpost team run takes the same file")
		}
		read = append(read, team.Policy{Spec: spec, Retries: t.Retries, Backoff: t.Wait()})
	}
	return func(item workitem.Ref, name string) (team.Policy, bool) {
		for i, t := range teams {
			if (name == "" || name == t.Name) && t.Matches(item.Owner(), item.Repo()) {
				p := read[i]
				p.Spec = forItem(p.Spec, item)
				return p, true
			}
		}
		return team.Policy{}, false
	}, nil
}

func teamFile(path string) (rules.Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return rules.Spec{}, err
	}
	asJSON, err := specfile.JSON(data, "limit", "stall")
	if err != nil {
		return rules.Spec{}, err
	}
	message := &teamv1.Spec{}
	if err := protojson.Unmarshal(asJSON, message); err != nil {
		return rules.Spec{}, err
	}
	spec, err := server.SpecOf(message)
	if err != nil {
		return spec, err
	}
	spec.Team = "item" // which is each item's own
	return spec.Check()
}

// forItem fills the work item in where the file has placeholders for it.
func forItem(s rules.Spec, item workitem.Ref) rules.Spec {
	fill := strings.NewReplacer("{work_item}", item.String(), "{owner}", item.Owner(), "{repo}", item.Repo(), "{number}", strconv.FormatUint(item.Number(), 10),
		"{target}", item.Target()).Replace
	step := func(s *rules.Step) *rules.Step {
		if s == nil {
			return nil
		}
		out := *s
		out.Prompt = fill(s.Prompt)
		return &out
	}
	s.Directory = fill(s.Directory)
	s.Plan, s.PRD, s.Verify, s.Fix = step(s.Plan), step(s.PRD), step(s.Verify), step(s.Fix)
	tasks := make([]rules.Job, 0, len(s.Tasks))
	for _, t := range s.Tasks {
		t.Prompt, t.Directory = fill(t.Prompt), fill(t.Directory)
		tasks = append(tasks, t)
	}
	s.Tasks = tasks
	return s
}
