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

// What the driver does to Peer, beside what peers say of themselves.
const (
	opKill   = "kill"
	opStop   = "stop"
	opCont   = "cont"
	opTerm   = "term"
	opCut    = "cut"  // of its link, or of all; Note is the kind
	opHeal   = "heal" // likewise
	opServer = "server"
)

// A journal is the history of an arena: what the driver does, and what the peers say. It is kept in a
// file, for people.
type journal struct {
	mu     sync.Mutex // protects the fields below
	file   *os.File
	events []event
}

// say writes down what the driver does.
func (j *journal) say(e event) {
	e.Wall, e.Mono = time.Now(), load.Mono()
	j.hear(e)
}

// hear writes down what a peer says.
func (j *journal) hear(e event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
	if err := json.NewEncoder(j.file).Encode(e); err != nil {
		panic(err) // without its history a run proves nothing
	}
}

// all returns all events in the order of time.
func (j *journal) all() []event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(j.events), func(a, b event) int { return cmp.Compare(a.Mono, b.Mono) })
}
