package model

import (
	"muxpost.dev/muxpost/core/dispatch"
	"muxpost.dev/muxpost/core/ledger"
	"muxpost.dev/muxpost/core/session"
)

const (
	events = 2 // events of the one work item, in upstream order
	runs   = 2 // runs of dispatchers that can be under way at once
	lives  = 8 // incarnations that can be known of at once, numbered from 1, and conversations
	// fresh is the number of a new one, until tidy gives it the next free number.
	fresh = lives - 1
)

// State is one state of the whole system. It holds bytes only, so that it can be compared and hashed. Everything is small: there is
// one work item, one host, one session. Tokens are ranks: what counts is their order.
type State struct {
	ledger [events]event
	db     database
	backup backup
	runs   [runs]run
	late   request
	op     op
	host   host
	tmux   tmux
	flight act
	agent  agent
	lives  [lives]life
	taken  [lives][events]uint8 // how often the transcript of a conversation has an event
	acted  uint8                // the highest token under which anything was changed
	left   [kinds]uint8         // how often each fault may still strike
	faults uint8                // how many may still strike in all
}

// event is a row of the poller's ledger.
type event struct {
	state    ledger.State
	tries    uint8
	unproven bool
}

// database is the dispatcher's part of Postgres.
type database struct {
	outcome [events]dispatch.Outcome // only the final ones are kept apart
	record  record
	holder  uint8 // 1 and 2 are runs, gone is a run that is over, 0 nobody
	expired bool
	parked  bool
	token   uint8
	last    uint8 // the sequence of tokens
}

const gone = runs + 1

// record is the registry's entry of the session; known is false when there is none.
type record struct {
	known        bool
	life         uint8
	conversation uint8 // 0 when it is not known
}

// backup is a copy of the database from earlier, in the configuration that restores one.
type backup struct {
	taken  bool
	ledger [events]event
	db     database
}

// run is one pass of a dispatcher over one delivery. The zero value is a free place.
type run struct {
	active  bool
	asked   bool // the poller still waits for its answer
	waiting bool // a request is under way
	expired bool // its lease is over, by its own clock
	resumes bool // the spawn that it ordered last is one with resume
	event   uint8
	token   uint8
	facts   dispatch.Facts
	record  record // the registry's entry as this run knows it
	learned bool
	life    uint8 // the incarnation that a paste is meant for
	sight   uint8 // the incarnation and conversation that the probe found
	sightOf uint8
	spawned uint8 // the incarnation and conversation that the spawn reported
	spawnOf uint8
	request request
}

// request is an order to the host that has not arrived yet. The zero value is none.
type request struct {
	kind         kind
	event        uint8
	prompt       bool // the event is the first prompt
	life         uint8
	conversation uint8 // to resume; 0 for a fresh one
	token        uint8
}

type kind uint8

const (
	nothing kind = iota
	pasteOrder
	spawnOrder
)

// op is the one mutation that the host has under way.
type op struct {
	stage stage
	order request
	from  uint8 // the run that gets the answer, from 1; 0 when nobody waits
	// What its look found.
	life   uint8
	of     uint8 // the conversation of that incarnation
	ring   uint8
	phase  session.Phase
	sent   bool  // a submit was sent by this op
	resent bool  // a CR was repeated by this op
	again  bool  // the paste is a second one, on evidence
	news   uint8 // sessions that it tried to create
	kills  uint8
	made   uint8 // the incarnation that it is creating
}

// host is tmuxd: what it has on disk, and the one thing that it has in memory.
type host struct {
	own     bool // in memory: the server's generation is ours
	life    uint8
	of      uint8
	token   uint8
	highest uint8 // the highest token that any order came with
	greeted bool  // by the dispatcher, since it last heard of an older token
	journal [events]entry
}

// entry is the last line of the journal on an event.
type entry struct {
	phase session.Phase
	life  uint8
	of    uint8
}

// tmux is the session's own server; there is none while session is false.
type tmux struct {
	session bool
	silent  bool
	hidden  bool // silent, and its socket is gone: a client would start a second server beside it
	dead    bool // the agent's pane
	life    uint8
	of      uint8
	ring    uint8
	fence   uint8
}

// act is a command list that left the host and was neither run nor given up. The zero value is none.
type act struct {
	what  deed
	event uint8
	life  uint8
	token uint8
	from  session.Phase
	again bool
	ring  uint8
	stale bool // the server has a newer generation than the one it names
}

type deed uint8

const (
	noDeed deed = iota
	pasteText
	sendCR
	clearDead
	createSession
)

// agent is the process that runs, or ran, the newest incarnation.
type agent struct {
	alive    bool
	life     uint8
	of       uint8
	started  bool // the harness was started by its wrapper
	ready    bool // it shows its composer
	dialog   bool
	composer uint8 // bits: one for each event's text, and draft
	queue    uint8 // submitted and not yet recorded
}

const draft = 1 << events

// life is what the disk holds of an incarnation.
type life struct {
	spec    bool // the wrapper may still start
	reached bool // the wrapper's record says that the harness was started
	of      uint8
	prompt  uint8 // the event that is its first prompt, from 1
}

func bit(e uint8) uint8 { return 1 << e }
