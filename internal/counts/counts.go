// Package counts counts what happens to the tasks of a peer's queues, for its statistics.
package counts

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/inspect"
)

// Counts are the counters of one or several queues.
type Counts struct {
	Started, Finished, Stopped, Canceled, Retried, Snoozed, Failed, Expired, Dropped atomic.Int64 // tasks, or attempts of them

	Failures   atomic.Int64 // errors and panics of handlers
	Running    atomic.Int64 // handlers that run, but those that count as Stuck
	Stuck      atomic.Int64 // handlers that didn't return in time, until they do
	Lost       atomic.Int64 // attempts that another worker may have taken over
	LostWrites atomic.Int64 // signs that Redis has lost writes

	busy        atomic.Int64 // ns of handlers that returned
	waited, ran histogram
}

type histogram [len(inspect.Histogram{})]atomic.Int64

// Begin counts a task that a handler has begun. It started at a time, in ms of Redis, and could have started since
// another; that's 0 if it isn't known. tries is how many attempts of it there were before.
func (c *Counts) Begin(at, since int64, tries int) {
	c.Started.Add(1)
	if since > 0 && tries == 0 {
		c.waited[inspect.BucketOf(time.Duration(at-since)*time.Millisecond)].Add(1)
	}
}

// Return counts a handler that ran for a time.
func (c *Counts) Return(after time.Duration) {
	c.busy.Add(int64(after))
	c.ran[inspect.BucketOf(after)].Add(1)
}

// A Tally is what the history of a queue has of the counts, in the order of store.Recorded.
type Tally [5 + 2*len(inspect.Histogram{})]int64

// Tally returns the counts until now.
func (c *Counts) Tally() Tally {
	t := Tally{c.Started.Load(), c.Finished.Load(), c.Failed.Load(), c.Retried.Load(), c.busy.Load() / int64(time.Millisecond)}
	for i := range c.ran {
		t[5+2*i], t[6+2*i] = c.waited[i].Load(), c.ran[i].Load()
	}
	return t
}

// Since returns what was counted since another tally.
func (t Tally) Since(o Tally) Tally {
	for i := range t {
		t[i] -= o[i]
	}
	return t
}

func (c *Counts) add(o *Counts) {
	for _, p := range [...][2]*atomic.Int64{
		{&c.Started, &o.Started}, {&c.Finished, &o.Finished}, {&c.Stopped, &o.Stopped}, {&c.Canceled, &o.Canceled},
		{&c.Retried, &o.Retried}, {&c.Snoozed, &o.Snoozed}, {&c.Failed, &o.Failed}, {&c.Expired, &o.Expired}, {&c.Dropped, &o.Dropped}, {&c.Stuck, &o.Stuck},
		{&c.Lost, &o.Lost}, {&c.Failures, &o.Failures}, {&c.Running, &o.Running}, {&c.LostWrites, &o.LostWrites},
	} {
		p[0].Add(p[1].Load())
	}
}

// All are the counters of all queues, by their ids. They outlive the engine's queues, since StartWork makes a new one each time. The
// zero value is ready, and its methods may be called concurrently.
type All struct {
	mu sync.Mutex         // protects the field below
	of map[string]*Counts // by the queue's id
}

// Of returns the counters of the queue with an id.
func (a *All) Of(id string) *Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.of[id]
	if c == nil {
		c = &Counts{}
		if a.of == nil {
			a.of = map[string]*Counts{}
		}
		a.of[id] = c
	}
	return c
}

// Stuck returns the ids of the queues that have stuck handlers, at most 10.
func (a *All) Stuck() (queues []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, c := range a.of {
		if c.Stuck.Load() > 0 && len(queues) < 10 {
			queues = append(queues, name)
		}
	}
	slices.Sort(queues)
	return queues
}

// Sum returns the totals of queues; without ids, of all.
func (a *All) Sum(ids ...string) *Counts {
	sum := &Counts{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, c := range a.of {
		if len(ids) == 0 || slices.Contains(ids, id) {
			sum.add(c)
		}
	}
	return sum
}

// Tallies returns the tallies of all queues, by their ids.
func (a *All) Tallies() map[string]Tally {
	all := map[string]Tally{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, c := range a.of {
		all[id] = c.Tally()
	}
	return all
}
