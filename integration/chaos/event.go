package main

import (
	"cmp"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/integration/load"
)

type event = load.Event

// What the driver does to Peer. The peers report the other operations.
const (
	opKill   = "kill"
	opStop   = "stop"
	opCont   = "cont"
	opTerm   = "term"
	opCut    = "cut"  // its link, or all links; Note is the kind
	opHeal   = "heal" // the same
	opServer = "server"
)

// A journal is the history of an arena: what the driver did, and what the peers reported. It is
// also written to a file, for people.
type journal struct {
	mu     sync.Mutex // protects the fields below
	file   *os.File
	events []event
}

// say records what the driver does.
func (j *journal) say(e event) {
	e.Wall, e.Mono = time.Now(), load.Mono()
	j.hear(e)
}

// hear records what a peer reports.
func (j *journal) hear(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	if err := json.NewEncoder(j.file).Encode(e); err != nil {
		panic(err) // a run without its history proves nothing
	}
}

// all returns all events, ordered by time.
func (j *journal) all() []event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(j.events), func(a, b event) int { return cmp.Compare(a.Mono, b.Mono) })
}
