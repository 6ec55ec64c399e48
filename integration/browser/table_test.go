package browser

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
)

// An action is an action of the dashboard: where it is, what to fill in, what the page says then,
// and what must be true afterwards.
type action struct {
	verb   string
	before func()
	page   string
	on     func() // done on the page first
	fields []string
	says   string
	so     func() bool
}

// A brake makes searches slow while it's on.
type brake struct {
	mu   sync.Mutex
	hold chan struct{} // nil: off
}

func (b *brake) set() { b.mu.Lock(); b.hold = make(chan struct{}); b.mu.Unlock() }
func (b *brake) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold != nil {
		close(b.hold)
		b.hold = nil
	}
}

// payload is an Options.Payload.
func (b *brake) payload(queue string, p []byte) string {
	b.mu.Lock()
	hold := b.hold
	b.mu.Unlock()
	if hold != nil && queue == "slow" {
		select {
		case <-hold:
		case <-time.After(time.Second): // the dashboard doesn't wait for more than two
		}
	}
	return string(p)
}

// actions are all actions, in an order in which each has something to do.
func actions(f *fleet, b *tab, held *brake) []action {
	t, q, victims, slow := f.t, f.emails, f.worker("victim", "victims"), f.worker("tortoise", "slow")
	stats := func() inspect.QueueStats { return peertest.Stats(t, q) }
	failures := func(n int) func() bool { return func() bool { return stats().Failed == n } }
	paused := func(is bool) func() bool { return func() bool { return stats().Paused == is } }
	silences := func(n int) func() bool {
		return func() bool {
			_, all, err := f.peer.Notes(t.Context())
			return err == nil && len(all) == n
		}
	}
	choose := func() { b.click(`document.querySelector('input[name=id]')`) }
	return []action{
		{verb: "enqueue", page: "queue?name=emails", fields: []string{"payload", "from the browser"}, says: "the task is in the queue",
			so: func() bool { return slices.Contains(peertest.Waiting(t, q), "from the browser") }},
		{verb: "pause", page: "queue?name=emails", says: "the queue is paused", so: paused(true)},
		{verb: "silence", page: "queue?name=emails", fields: []string{"reason", "planned"}, says: "silenced, for everybody", so: silences(1)},
		{verb: "unsilence", page: "./", says: "no longer silenced", so: silences(0)},
		{verb: "resume", page: "queue?name=emails", says: "no longer paused", so: paused(false)},
		{verb: "drain", page: "queue?name=emails", says: "still running", so: paused(true)},
		{verb: "resume", page: "queue?name=emails&tab=running", says: "no longer paused", so: paused(false)},
		{verb: "requeue", page: "failed?name=emails", on: choose, says: "1 task put back", so: failures(2)},
		{verb: "discard", page: "failed?name=emails", on: choose, says: "1 task deleted", so: failures(1)},
		{verb: "requeue-matching", page: "failed?name=emails&reason=o", says: "requeued 1 task", so: failures(0)},
		{verb: "discard-matching", before: func() { fail(t, victims, "worse", "disk full") }, page: "failed?name=victims", says: "deleted 1 task",
			so: func() bool { return peertest.Stats(t, victims).Failed == 0 }},
		{verb: "requeue-matching", before: func() {
			for n := range 60 { // it takes a minute
				fail(t, slow, fmt.Sprint("much ", n), "too slow")
			}
		}, page: "failed?name=slow&payload=much", on: held.set, says: "requeuing 0 tasks", so: func() bool { return true }},
		{verb: "stop", page: "failed?name=slow&payload=much", says: "stop", so: func() bool {
			held.release()
			return peertest.Stats(t, slow).Failed == 60
		}},
		{verb: "cancel", page: "task?name=emails&key=invoice-7", says: "canceled", so: func() bool { return !has(t, q, "invoice-7") }},
		{verb: "run-now", page: "recurring", says: "starts now", so: func() bool { return f.runs.Load() == 1 }},
		{verb: "return", before: func() { peertest.Enqueue(t, victims, "held"); peertest.Take(t, victims) }, page: "queue?name=victims&tab=running",
			on:   func() { b.leaves(func() { b.click(`document.querySelector('#tasks a[href^="task?"]')`) }) },
			says: "returned to the front", so: func() bool { return slices.Equal(peertest.Waiting(t, victims), []string{"held"}) }},
		{verb: "fail-worker", before: func() { f.worker("spare", "more") }, page: "workers?q=spare", says: "evicted", so: func() bool {
			return peertest.Stats(t, f.peer.Queue("more")).Workers == 0
		}},
		{verb: "sweep", page: "workers", says: "swept", so: func() bool { return true }},
		{verb: "silence", before: func() { peertest.Enqueue(t, f.peer.Queue("nobody"), "x") }, page: "", on: func() { b.reads("no worker") },
			fields: []string{"reason", "it moves"}, says: "silenced, for everybody", so: func() bool { return true }},
		{verb: "unsilence", page: "", on: func() { b.reads("more") }, says: "no longer silenced", so: func() bool { return true }},
		{verb: "check", page: "server", says: "checked", so: func() bool { return true }},
		{verb: "delete", page: "queue?name=emails", says: "are deleted", so: func() bool { return stats().Waiting == 0 }},
	}
}
