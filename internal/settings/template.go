package settings

import (
	"errors"
	"io/fs"
	"os"

	"muxpost.dev/muxpost/core/fault"
)

// template is the first configuration. Sentences begin with one space after the #; a setting that is switched off begins with
// two at least, so that taking the # away switches it on.
const template = `# Configuration of muxpost. One file for all services; each reads its own section, and refuses a key it does not know.
# A setting that is switched off shows an example; take the # away, keep the spaces, and run: muxpost down && muxpost up

# tmuxd runs the agents of this machine in tmux sessions.
tmuxd:
  make_directory: true
# Where agents work. {target} stands for the session's name; every directory must be below one of the roots.
#  directory: /home/me/work/{target}
#  roots: [/home/me/work]
# Without this the directory is made empty. With it an agent finds the repository there, on a branch of its item's own.
#  trees:
#    - match: octo/*
#      kind: clone
#      repository: git@github.com:{owner}/{repo}.git
# How many agents may live on this machine at once. An event that needs one more waits.
#  capacity: 20
# Programs that can run as agents, beside the bundled fakeagent. The patterns say how the screen of the program reads:
# prompt is the first row of the box that text is typed into, its one group is what is in the box.
#  harnesses:
#    mycli:
#      binary: mycli
#      fresh: ["--session-id", "{conversation_id}"]
#      resume: ["--resume", "{conversation_id}"]
#      conversation_id: assigned
#      pass_env: [MYCLI_API_KEY]
#      prompt: '^> (.*)$'
#      placeholder: '^Type a message'
#      footer: '^  \? for help'
#      busy: 'esc to interrupt'
#      dialogs: ['^Do you want to ']
#      when_busy: deliver
#      settle: 200ms

# The dispatcher decides what each event needs: a paste into a living agent, or a start.
dispatcher:
# What to start for a work item that has no session yet. fakeagent is a stand-in to try muxpost out with; muxpost harnesses lists the others.
  harness: fakeagent
# To see what would be done without anything being started or typed: events wait, and muxpost explain tells.
#  shadow: true
# Without these, muxpost up keeps a database of its own in the data directory. Set the same in both sections.
#  database_url_file: /etc/muxpost/database-url

# The poller reads sources of events and keeps them until each has ended.
poller:
# What is written about one item beyond so many posts within five minutes is not delivered: programs that answer each other write so much.
#  loop_posts: 30
# Where webhooks come in, for sources with webhook: true. A proxy in front of it has to end TLS; docs/operations.md says how.
#  webhook: {listen: "127.0.0.1:8099", secret_file: webhook-secret}
# No source: events come by hand alone (muxpost send). With one, delete the [] and switch on the lines below.
  sources: []
#    - name: widgets
#      kind: github
#      repositories: [octo/widget]
# Open issues with this label become work items; and those that mention a login, or are assigned to one (assignee).
#      label: muxpost
#      mention: muxpost-bot
# Whoever may steer has a team run for an issue by this label: the one of that name in dispatcher.teams.
#      team_labels: {muxpost-team: crew}
# Who may steer an agent, by what they write. Nobody else does, and an issue of somebody else is not started by its label alone unless
# trust_label is true.
#      authors: [alice]
# And those whom GitHub calls so: OWNER, MEMBER, COLLABORATOR. And bots, by name; no other machine steers.
#      associations: [MEMBER]
#      machines: ["reviewer[bot]"]
# A file with a token and nothing else, chmod 600; a relative path begins where this file is.
#      token_file: github-token
#      interval: 30s
# The comments, reviews and CI results of a pull request go to the agent of the issue that it closes, or whose branch it is of. These are
# the defaults: pulls: false reads none, ci: [] no results.
#      pulls: true
#      ci: [check_run, status]
#      branch: muxpost/{number}
# Takes webhooks at /webhooks/widgets, so that an event goes out in a moment. The source is looked at as well.
#      webhook: true
# Writes on the issue what needs a person: an event that gave up, say. The token must be one that may write to issues.
#      notices: true
# Puts reactions on what is taken, delivered or not delivered. The token must be one that may write to issues.
#      reactions: true
`

// Template returns the configuration that WriteTemplate writes.
func Template() string { return template }

// WriteTemplate writes the first configuration file, mode 0600, where there is none. A file that is there is fault.AlreadyExists.
func WriteTemplate(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.Newf(fault.AlreadyExists, "", "%s is there already", path)
	}
	if err == nil {
		_, err = file.WriteString(template)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the first configuration file cannot be written", err).
			WithRemedy("check that this user may write to its directory, or name another with --config")
	}
	return nil
}
