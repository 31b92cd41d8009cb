package settings

import (
	"log/slog"
	"time"
)

// Tmuxd is the section of tmuxd.
type Tmuxd struct {
	// Listen is the address of the gRPC server: loopback, or unix:/path.
	Listen string `conf:"listen"`
	// DataDir is the data directory of the installation; the sections that name one must agree.
	DataDir string `conf:"data_dir"`
	// Host is this host's name in records and logs.
	Host string `conf:"host"`
	// StateDir holds what outlives tmuxd; SocketDir the sockets of the tmux servers, whose paths must be short.
	StateDir  string `conf:"state_dir"`
	SocketDir string `conf:"socket_dir"`
	// TLS is how dispatchers on other machines reach this host; without it none does.
	TLS ServerTLS `conf:"tls"`
	// RenewFrom is the address of the dispatcher that renews the certificate; without one it is renewed by hand.
	RenewFrom string `conf:"renew_from"`
	// Launcher is the socket of who starts tmux servers for tmuxd, apart from it; without one tmuxd starts them itself.
	Launcher string `conf:"launcher"`
	// Tmux is the tmux binary, Exec the wrapper's.
	Tmux string `conf:"tmux"`
	Exec string `conf:"exec"`
	// Roots, Directory and MakeDirectory say where agents work.
	Roots         []string `conf:"roots"`
	Directory     string   `conf:"directory"`
	MakeDirectory bool     `conf:"make_directory"`
	// Trees say where the agents of some repositories work, and how that is made; the first that matches counts. TreesMinFreeMiB is the space
	// that must be left where a working tree is made.
	Trees           []Tree `conf:"trees"`
	TreesMinFreeMiB int    `conf:"trees_min_free_mib"`
	// Width and Height are the size of a pane that nobody looks at, in columns and rows.
	Width  int `conf:"width"`
	Height int `conf:"height"`
	// Capacity is how many agents may live at once; zero is any number.
	Capacity int `conf:"capacity"`
	// Labels are what dispatcher.placement chooses hosts by.
	Labels   map[string]string `conf:"labels"`
	Retain   Retain            `conf:"retain"`
	LogLevel slog.Level        `conf:"log_level"`
	// Tasks says how attempts are run.
	Tasks Tasks `conf:"tasks"`
	// Harnesses is the table of the programs that run agents, by name, the bundled ones included.
	Harnesses map[string]Harness `conf:"harnesses"`
}

// Tree says where the agents of some repositories work. In Repository, Base, Branch and Directory these words are replaced: {owner}, {repo},
// {number} and {target}.
type Tree struct {
	// Match is which repositories it is for: a pattern as in path.Match of owner/repo, in lower case; empty for all.
	Match string `conf:"match"`
	// Kind is TreeDirectory, TreeWorktree or TreeClone.
	Kind string `conf:"kind"`
	// Repository is, for a worktree, the path of a git repository on the host, and for a clone what git clones.
	Repository string `conf:"repository"`
	// Base is what a new branch begins from: a branch, a tag or a commit; empty for the remote's main branch.
	Base string `conf:"base"`
	// Branch is the item's; empty for muxpost/{number}.
	Branch string `conf:"branch"`
	// Directory is as Tmuxd.Directory, which counts when it is empty.
	Directory string `conf:"directory"`
}

// What Tree.Kind may be.
const (
	// TreeDirectory is a plain directory.
	TreeDirectory = "directory"
	// TreeWorktree is a worktree of a git repository on the host.
	TreeWorktree = "worktree"
	// TreeClone is a clone of its own.
	TreeClone = "clone"
)

// Retain says how long the remains of agents that ended are kept.
type Retain struct {
	// Age is how long the pane of an agent that ended is kept, and what is remembered of it.
	Age time.Duration `conf:"age"`
	// Count is how many such panes are kept at most.
	Count int `conf:"count"`
	// Journal is how long it is known what was delivered to a session that was forgotten since.
	Journal time.Duration `conf:"journal"`
}

// Tasks is how attempts, the launches of tasks that run to completion, are limited and kept.
type Tasks struct {
	// Limit is how long an attempt may last whose caller names no time, and MaxLimit what a caller may name at most.
	Limit    time.Duration `conf:"limit"`
	MaxLimit time.Duration `conf:"max_limit"`
	// MaxRunning is how many attempts run at once.
	MaxRunning int `conf:"max_running"`
	// KeepFailed retains the pane of an attempt that did not succeed, until it is swept.
	KeepFailed bool `conf:"keep_failed"`
	// KeepFor and Keep are for how long, and how many, attempts are kept that are over: their record, their output, a retained pane.
	KeepFor time.Duration `conf:"keep_for"`
	Keep    int           `conf:"keep"`
}

// Harness is one entry of tmuxd's table. In argv, env and transcript these words are replaced: {conversation_id}, {prompt_file},
// {dir}, {dir_quoted} (as a JSON or TOML string), {home} (the user's home directory), {state} (the harness's own directory below the
// state directory) and {socket} (where the agent of a session is to listen for its channel; empty for a task); in Task also {attempt_id}, {sentence} and {prompt}.
type Harness struct {
	// Binary is the program, by name or path. Words after it, apart by blanks, are its first arguments.
	Binary string `conf:"binary"`
	// Channel is how deliveries reach it once its conversation is there: see the Channel constants. Whatever it is, the first one may be typed.
	Channel string `conf:"channel"`
	// ChannelFresh and ChannelResume are taken in the place of Fresh and Resume where it is not typed at; empty takes those.
	ChannelFresh  []string `conf:"channel_fresh"`
	ChannelResume []string `conf:"channel_resume"`
	// Companion are the arguments with which the program serves its channel at {socket}, in a process of its own that a session starts first and
	// that ends with it. None means that it does by itself.
	Companion []string `conf:"companion"`
	// Fresh and Resume are the arguments for a new and an earlier conversation. No Resume means that it cannot.
	Fresh  []string `conf:"fresh"`
	Resume []string `conf:"resume"`
	// PromptArgs are added when the session starts with an event. They must hold {prompt_file}. None means that the first event is
	// pasted once the composer is there: prompt text never stands on a command line.
	PromptArgs []string `conf:"prompt_args"`
	// Task are the arguments with which it does one task and ends by itself. None means that it runs no tasks.
	Task []string `conf:"task"`
	// TaskPrompt says how the task reaches it: see the TaskPrompt constants.
	TaskPrompt string `conf:"task_prompt"`
	// Check is true for a check: what it exits with says whether the work is good. It is never used for anything else.
	Check bool `conf:"check"`
	// ConversationID says where the id comes from: see the Conversation constants.
	ConversationID string `conf:"conversation_id"`
	// ConversationForm matches an id as a whole; no other reaches a command line or is learned. Empty takes any that cannot be mistaken for
	// a flag or a path.
	ConversationForm string `conf:"conversation_form"`
	// Files are written before each start, for the program to find them there: the text of each by its path, which begins with {state}.
	Files map[string]string `conf:"files"`
	// Env is added to the environment, as KEY: value.
	Env map[string]string `conf:"env"`
	// PassEnv names variables that are passed on from tmuxd's own environment (keys of models, for example).
	PassEnv []string `conf:"pass_env"`
	// Prompt matches the first row of the composer; its first group is the text in it.
	Prompt string `conf:"prompt"`
	// Framed is true where the composer stands in a frame: Prompt matches each of its rows, and an empty one is above the first.
	Framed bool `conf:"framed"`
	// Edge is for programs that hide the cursor: it matches the row above the composer and the one below it. The composer is then the end of
	// the screen: below it is nothing but rows that Footer matches, and at least one.
	Edge string `conf:"edge"`
	// Placeholder matches the text of an empty composer.
	Placeholder string `conf:"placeholder"`
	// Footer matches the row below the composer.
	Footer string `conf:"footer"`
	// Fold matches the text that stands for a long paste; its first group, if any, is the number of characters.
	Fold string `conf:"fold"`
	// Dialogs match rows of a dialog that waits for a person. They are also looked for by tmux, so they must mean the same as POSIX
	// extended regular expressions.
	Dialogs []string `conf:"dialogs"`
	// DialogTitles are beginnings of the pane's title while a dialog waits.
	DialogTitles []string `conf:"dialog_titles"`
	// DialogsHideCursor is true where the cursor does not show while a dialog is open: what looks like one beside a composer that has the cursor
	// is a text that quotes it.
	DialogsHideCursor bool `conf:"dialogs_hide_cursor"`
	// BusyTitle matches the pane's title, Busy a row of the last ones, while a turn runs.
	BusyTitle string `conf:"busy_title"`
	Busy      string `conf:"busy"`
	// Status says how it tells what it does, so that nobody has to look at its screen for that: see the Status constants. Empty tells nothing.
	Status string `conf:"status"`
	// Approval matches the row of a dialog, or the title, with which it asks to be allowed something. Any other dialog needs a person as well.
	Approval string `conf:"approval"`
	// Failures classify what it says when it cannot go on, the first that matches counts.
	Failures []Failure `conf:"failures"`
	// TurnEnds matches the line of the transcript with which a turn ends; empty where the transcript does not tell how one ended.
	TurnEnds string `conf:"turn_ends"`
	// WhenBusy says what to do with an event during a turn: "deliver" (the program queues it) or "hold".
	WhenBusy string `conf:"when_busy"`
	// NoBracketedPaste is true for programs without bracketed paste: a text is made one line for them.
	NoBracketedPaste bool `conf:"no_bracketed_paste"`
	// Settle is how long after a paste the program takes a submit.
	Settle time.Duration `conf:"settle"`
	// Survival is how long a start is watched before it counts.
	Survival time.Duration `conf:"survival"`
	// Transcript is the file in which the program records the conversation; empty when there is none that can be read.
	Transcript string `conf:"transcript"`
	// Taken matches the lines of the transcript that prove that the agent took a message.
	Taken string `conf:"taken"`
	// Unmeasured names the keys of the entry that were never tried on the real program, for people.
	Unmeasured []string `conf:"unmeasured"`
}

// Failure is a way in which a program says that it cannot go on.
type Failure struct {
	// Class is what that means: see the Failure constants.
	Class string `conf:"class"`
	// Pattern matches a row of its screen: one of the last of a program that ended, or one above the composer that nothing was written after. Told
	// matches what it told of a turn that ended: the line that TurnEnds finds, or the detail of its note. One of them may be missing; the first group of
	// either, where there is one, is what is said of it.
	Pattern string `conf:"pattern"`
	Told    string `conf:"told"`
}

// What Dispatcher.FirstSpawn may be.
const (
	// FirstSpawnAny lets every event start the first session of its work item.
	FirstSpawnAny = "any"
	// FirstSpawnOpened lets the opening event do so, and a message that was sent by hand.
	FirstSpawnOpened = "opened"
	// FirstSpawnNever lets none: events go into sessions that people started.
	FirstSpawnNever = "never"
)

// Dispatcher is the section of the dispatcher.
type Dispatcher struct {
	// Listen is the address of the API: loopback, or unix:/path.
	Listen string `conf:"listen"`
	// DataDir is as Tmuxd.DataDir.
	DataDir string `conf:"data_dir"`
	// DatabaseURL and DatabaseURLFile are the database, or a file that holds its URL; one of them at most.
	DatabaseURL     string `conf:"database_url"`
	DatabaseURLFile string `conf:"database_url_file"`
	// Host is the one host, or Hosts are several.
	Host  Host   `conf:"host"`
	Hosts []Host `conf:"hosts"`
	// TLS is by what hosts on other machines know this dispatcher, and the address, if any, at which other machines reach its API.
	TLS ServerTLS `conf:"tls"`
	// CADir is the directory of the authority that issues the certificates of hosts which join.
	CADir string `conf:"ca_dir"`
	// Placement says on which hosts the work items of some repositories may be started; the first that matches counts.
	Placement []Placement `conf:"placement"`
	// Teams say what /muxpost team runs for the work items of some repositories; the first that matches counts.
	Teams []Team `conf:"teams"`
	// Harness is what a first session runs that names none itself.
	Harness string `conf:"harness"`
	// Resume says whether a session that ended comes back with its conversation.
	Resume bool `conf:"resume"`
	// FirstSpawn says which events may start a session for a work item that has none: FirstSpawnAny, FirstSpawnOpened or FirstSpawnNever.
	FirstSpawn string  `conf:"first_spawn"`
	Breaker    Breaker `conf:"breaker"`
	// Idle says what becomes of agents that nobody has needed for long.
	Idle Idle `conf:"idle"`
	// Shadow makes it look and decide, say what it would do, and start and type nothing.
	Shadow bool `conf:"shadow"`
	// Retention is how long what was delivered is kept.
	Retention time.Duration `conf:"retention"`
	// UndeliveredRetention is how long what was not delivered is kept since it changed last.
	UndeliveredRetention time.Duration `conf:"undelivered_retention"`
	// EventsRetention is how long events are kept for those who follow them; Retention when the file leaves it out.
	EventsRetention time.Duration `conf:"events_retention"`
	LogLevel        slog.Level    `conf:"log_level"`
}

// Listed reports whether the hosts are those under hosts, of which there may be none until muxpost hosts add names some.
func (d *Dispatcher) Listed() bool { return d.Hosts != nil }

// TLS names our own certificate, whose URI says who we are, its key, and the certificate of the authority that both ends trust.
type TLS struct {
	CertFile string `conf:"cert_file"`
	KeyFile  string `conf:"key_file"`
	CAFile   string `conf:"ca_file"`
}

// ServerTLS is TLS with an address to listen on, which other machines may reach: whoever connects has to show a certificate or, at the operator
// APIs, a token.
type ServerTLS struct {
	Listen   string `conf:"listen"`
	CertFile string `conf:"cert_file"`
	KeyFile  string `conf:"key_file"`
	CAFile   string `conf:"ca_file"`
}

// Files are the files of both ends.
func (t ServerTLS) Files() TLS { return TLS{t.CertFile, t.KeyFile, t.CAFile} }

// Team says what a team does for the work items of some repositories.
type Team struct {
	// Name is what a label or a comment calls it by. Where none is said it is the first that matches.
	Name string `conf:"name"`
	// Match is as Tree.Match.
	Match string `conf:"match"`
	// File describes the team, as muxpost team run takes it, with placeholders for the item.
	File string `conf:"file"`
	// Retries is how often a run that failed is begun again by itself, Backoff how long after the first failure; it doubles each time.
	Retries int           `conf:"retries"`
	Backoff time.Duration `conf:"backoff"`
}

// Placement says which labels a host must have for the work items of some repositories.
type Placement struct {
	// Match is as Tree.Match.
	Match  string            `conf:"match"`
	Labels map[string]string `conf:"labels"`
}

// Breaker says when a work item whose agents die again and again is parked.
type Breaker struct {
	// Deaths is how many within Within are too many; zero parks nothing.
	Deaths int           `conf:"deaths"`
	Within time.Duration `conf:"within"`
	// Parked is how long an item stays parked; zero is until a person, or another version, takes it back.
	Parked time.Duration `conf:"parked"`
}

// Idle is what becomes of agents that nobody has needed for long.
type Idle struct {
	// After is how long an agent must have waited for a message to count; zero counts none.
	After time.Duration `conf:"after"`
	// End ends those that nobody needs as far as their host can tell; otherwise they are only listed.
	End bool `conf:"end"`
}

// Host is a host that the dispatcher calls.
type Host struct {
	// Name is the name that tmuxd must give; empty takes the name that it gives, where there is one host.
	Name string `conf:"name"`
	// Address is where tmuxd answers.
	Address string `conf:"address"`
}

// Poller is the section of the poller.
type Poller struct {
	// Listen is the address of the operator API: loopback, or unix:/path.
	Listen string `conf:"listen"`
	// DataDir is as Tmuxd.DataDir.
	DataDir string `conf:"data_dir"`
	// DatabaseURL and DatabaseURLFile are as the dispatcher's.
	DatabaseURL     string `conf:"database_url"`
	DatabaseURLFile string `conf:"database_url_file"`
	// Dispatcher is its address.
	Dispatcher string `conf:"dispatcher"`
	// TLS is by what a dispatcher on another machine knows this poller, and the address, if any, at which other machines reach its API.
	TLS ServerTLS `conf:"tls"`
	// Workers is how many events are with the dispatcher at once.
	Workers int `conf:"workers"`
	// Budget is how many tries an event may spend.
	Budget int `conf:"budget"`
	// LoopPosts is how many posts about one item within five minutes are delivered; more are taken for a loop. 0 delivers all.
	LoopPosts int `conf:"loop_posts"`
	// Retention is how long events that are finished are kept.
	Retention time.Duration `conf:"retention"`
	// Templates is a directory with templates of the operator's, in the place of built-in ones; empty for none.
	Templates string `conf:"templates"`
	// DigestAfter is how many further events of an item must wait for all of them to become one text; zero never does that.
	DigestAfter int `conf:"digest_after"`
	// CoalesceChecks has the results of CI at one commit become one text whenever two or more wait.
	CoalesceChecks bool       `conf:"coalesce_checks"`
	LogLevel       slog.Level `conf:"log_level"`
	// Webhook is where events may be brought to; without an address nothing is.
	Webhook Webhook  `conf:"webhook"`
	Sources []Source `conf:"sources"`
}

// Webhook says where webhooks are received, and by what they are known.
type Webhook struct {
	// Listen is an address, which other machines may reach, or unix:/path; empty receives none.
	Listen string `conf:"listen"`
	// SecretFile holds the secrets of every source that names no file of its own.
	SecretFile string `conf:"secret_file"`
	// MaxBodyMiB is how large a payload may be.
	MaxBodyMiB int `conf:"max_body_mib"`
}

// Source is one entry of poller.sources.
type Source struct {
	// Name is how the source is called in the ledger and in logs.
	Name string `conf:"name"`
	// Kind is KindGitHub.
	Kind string `conf:"kind"`
	// BaseURL is the server's address; empty for github.com.
	BaseURL string `conf:"base_url"`
	// Host is the server's name in names of work items; what BaseURL says when the file leaves it out.
	Host string `conf:"host"`
	// TokenFile holds the token. A token never stands in the configuration itself.
	TokenFile string `conf:"token_file"`
	// Repositories, as owner/repo.
	Repositories []string `conf:"repositories"`
	// App is the GitHub App to act as, in the place of a token.
	App *App `conf:"app"`
	// Label puts an open issue under our care, Assignee one that is assigned to that account, and Mention one that mentions an account:
	// a login, or true for the source's own; MentionOf reads it.
	Label    string `conf:"label"`
	Assignee string `conf:"assignee"`
	Mention  any    `conf:"mention"`
	// TeamLabels have a team run for an open issue whenever one who may steer puts one there: labels, each with the name of its team; empty for the
	// first that is configured for the repository.
	TeamLabels map[string]string `conf:"team_labels"`
	// Pulls has open pull requests read; ReadsPulls is what counts.
	Pulls *bool `conf:"pulls"`
	// CI are the kinds of results of CI to read, as in CIKinds; none when empty, and the first two when the file leaves it out.
	CI []string `conf:"ci"`
	// Authors are the logins that may steer; nobody when empty.
	Authors []string `conf:"authors"`
	// Associations are what GitHub may say of an author for him to steer, such as MEMBER.
	Associations []string `conf:"associations"`
	// Machines are the logins of bots that may steer; none when empty.
	Machines []string `conf:"machines"`
	// Branch names the branch that belongs to an item, with {number}; "none" for no such rule.
	Branch string `conf:"branch"`
	// TrustLabel lets the opening event of a labelled issue through whoever wrote it.
	TrustLabel bool `conf:"trust_label"`
	// Interval is how often the source is looked at.
	Interval time.Duration `conf:"interval"`
	// MaxInterval is how seldom at most what is quiet is read, where reading it costs something.
	MaxInterval time.Duration `conf:"max_interval"`
	// FullRead is how often each repository is read in full, whatever the server says has not changed.
	FullRead time.Duration `conf:"full_read"`
	// Notices lets muxpost write to the source's tickets what needs a person.
	Notices bool `conf:"notices"`
	// Reactions lets muxpost put reactions on what it takes, delivers and fails to deliver.
	Reactions bool `conf:"reactions"`
	// Webhook is whether the source's webhooks are taken, beside its being looked at.
	Webhook bool `conf:"webhook"`
	// WebhookSecretFile holds the secrets of its webhooks; Webhook.SecretFile where the file leaves it out and Webhook is on.
	WebhookSecretFile string `conf:"webhook_secret_file"`
}

// App is a GitHub App to act as.
type App struct {
	// ID is the App's id, or its client id; AppID reads it.
	ID any `conf:"id"`
	// PrivateKeyFile holds its private key, in PEM.
	PrivateKeyFile string `conf:"private_key_file"`
	// InstallationID is the one installation to use; each owner's own when 0.
	InstallationID int64 `conf:"installation_id"`
}
