package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// A tally has the outcome of every task. It counts the ids in the payloads, from
// actual reports: by Redis (accepted, finished, failed), by the
// peers (started, retried), by the result of a cancel, and in the end from the
// queue.
type tally struct {
	mu       sync.Mutex // protects the fields below
	changed  chan struct{}
	fates    map[int]*fate
	finishes []time.Time
	gaps     int // in the events of Redis: finishes may be missing
}

// A fate is the outcome of one task.
type fate struct {
	enqueued, finished, canceled, returned, left bool

	due     time.Time     // when it should start, by the local clock; zero is now
	late    time.Duration // how long after that it started
	tried   time.Time     // when its last attempt failed
	retries int           // since it was enqueued, or requeued
	again   int           // retries before that
	failed  bool          // it was in the failed queue
	fixed   bool          // and was requeued from there
	stuck   bool          // it is there at the end

	peer   int  // number of the peer that started it last; 0: none has
	orphan bool // that peer was killed while it held the task
	twice  bool // started again because of that
	other  bool // started again for another reason
}

// retried returns how many times the task was retried.
func (f *fate) retried() int { return f.again + f.retries }

// onTime reports whether a scheduled task started on time: not before, and not
// much later.
func (f *fate) onTime() bool {
	return !f.due.IsZero() && f.peer != 0 && f.late >= 0 && f.late < time.Second
}

func newTally() *tally {
	return &tally{changed: make(chan struct{}), fates: map[int]*fate{}}
}

// note changes the fate of a task, and wakes the waiters.
func (t *tally) note(id int, change func(f *fate)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.fates[id]
	if f == nil {
		f = &fate{}
		t.fates[id] = f
	}
	change(f)
	close(t.changed)
	t.changed = make(chan struct{})
}

// enqueued: Redis has accepted the task.
func (t *tally) enqueued(id int) { t.note(id, func(f *fate) { f.enqueued = true }) }

// scheduled: the task should start at a time, unless Redis refuses it.
func (t *tally) scheduled(id int, due time.Time) { t.note(id, func(f *fate) { f.due = due }) }

// finished: Redis has accepted the end of the task.
func (t *tally) finished(id int) (known fate) {
	t.note(id, func(f *fate) {
		f.finished = true
		t.finishes = append(t.finishes, time.Now())
		known = *f
	})
	return known
}

// tried: an attempt at the task failed, and another will follow.
func (t *tally) tried(id int, at time.Time) { t.note(id, func(f *fate) { f.tried = at }) }

// failed: Redis has the task in the failed queue.
func (t *tally) failed(id int) { t.note(id, func(f *fate) { f.failed = true }) }

// fixed: the task is about to be requeued from there, with its counts reset.
func (t *tally) fixed(id int) {
	t.note(id, func(f *fate) { f.fixed, f.again, f.retries, f.peer = true, f.retried(), 0, 0 })
}

// canceled: the cancel removed or stopped a copy.
func (t *tally) canceled(id int) { t.note(id, func(f *fate) { f.canceled = true }) }

// orphaned: a killed peer holds the task.
func (t *tally) orphaned(id int) { t.note(id, func(f *fate) { f.orphan = true }) }

// left: at the end, the task is still in the queue, or held by a dead peer.
func (t *tally) left(id int, waits bool) {
	t.note(id, func(f *fate) {
		f.left = true
		f.returned = f.returned || f.orphan && waits
	})
}

// stuck: at the end, the task is in the failed queue.
func (t *tally) stuck(id int) { t.note(id, func(f *fate) { f.failed, f.stuck = true, true }) }

// started: a peer has started the task, after a number of retries. It returns the
// fate before.
func (t *tally) started(id, peer, retries int, at time.Time) (before fate) {
	t.note(id, func(f *fate) {
		before = *f
		if f.peer == 0 && !f.due.IsZero() {
			f.late = at.Sub(f.due)
		}
		f.returned = f.returned || f.orphan
		f.twice = f.twice || f.orphan && f.peer != 0
		f.other = f.other || !f.orphan && f.peer != 0 && retries <= f.retries
		f.peer, f.orphan, f.retries = peer, false, max(retries, f.retries)
	})
	return before
}

// gap: some events were missed.
func (t *tally) gap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gaps++
}

// until waits until met returns true. It calls met with t.mu held.
func (t *tally) until(ctx context.Context, met func() bool) error {
	for {
		t.mu.Lock()
		is, changed := met(), t.changed
		t.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// await waits until the fate of the task satisfies wished.
func (t *tally) await(ctx context.Context, id int, wished func(f fate) bool) (f fate, err error) {
	err = t.until(ctx, func() bool {
		if known := t.fates[id]; known != nil {
			f = *known
		}
		return wished(f)
	})
	return f, err
}

// rate returns how many tasks were finished in the last second.
func (t *tally) rate() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for i := len(t.finishes) - 1; i >= 0 && time.Since(t.finishes[i]) <= time.Second; i-- {
		n++
	}
	return n
}

// A summary has the totals of a tally.
type summary struct {
	Enqueued  int     `json:"enqueued"`
	Finished  int     `json:"finished"`
	Canceled  int     `json:"canceled"`
	Left      int     `json:"in_the_queue"`
	Stuck     int     `json:"still_failed"`
	Lost      int     `json:"lost"`
	Returned  int     `json:"returned"`                // from a killed peer to the front
	Twice     int     `json:"started_twice"`           // because of the kill
	Other     int     `json:"started_again,omitempty"` // started again for another reason
	Retried   int     `json:"retried"`                 // attempts that followed one that failed
	Failed    int     `json:"failed"`                  // were in the failed queue
	Fixed     int     `json:"requeued"`                // and were requeued from there
	Scheduled int     `json:"scheduled"`               // for a time
	OnTime    int     `json:"on_time"`                 // started then
	Late      seconds `json:"late_seconds"`            // the longest after its time
	Gaps      int     `json:"missed_events,omitempty"` // finished may be too low
}

// open returns how many accepted tasks have not ended.
func (s summary) open() int { return s.Enqueued - s.Finished - s.Canceled }

func (t *tally) sum() summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.add()
}

// add computes the totals. Lost tasks were accepted, have not ended and are
// neither left nor in the failed queue; the number is meaningful only after left
// and stuck were recorded. The caller holds t.mu.
func (t *tally) add() summary {
	s := summary{Gaps: t.gaps}
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for _, f := range t.fates {
		count(&s.Enqueued, f.enqueued)
		count(&s.Finished, f.finished)
		count(&s.Canceled, f.canceled)
		count(&s.Left, f.left)
		count(&s.Stuck, f.stuck)
		count(&s.Lost, f.enqueued && !f.finished && !f.canceled && !f.left && !f.stuck)
		count(&s.Returned, f.returned)
		count(&s.Twice, f.twice)
		count(&s.Other, f.other)
		count(&s.Failed, f.failed)
		count(&s.Fixed, f.fixed)
		count(&s.Scheduled, f.enqueued && !f.due.IsZero())
		count(&s.OnTime, f.onTime())
		s.Retried += f.retried()
		if !f.due.IsZero() {
			s.Late = max(s.Late, seconds(f.late))
		}
	}
	return s
}

// print writes the summary for people.
func (s summary) print(out io.Writer, st style) error {
	lost := good
	if s.Lost > 0 {
		lost = bad
	}
	row := func(n int, label, remark string) string {
		text := fmt.Sprintf("  %6d  %-14s", n, label)
		return strings.TrimRight(text+st.write(dim, remark), " ") + "\n"
	}
	text := row(s.Enqueued, "enqueued", "") +
		row(s.Finished, "finished", "") +
		row(s.Canceled, "canceled", "while it ran") +
		row(s.Left, "in the queue", "when the demo ended") +
		row(s.Stuck, "still failed", "in the failed queue, with the reason") +
		st.write(bold, st.write(lost, fmt.Sprintf("  %6d  lost", s.Lost))) + "\n\n" +
		row(s.Returned, "returned", "to the front of the queue, after their peer was killed") +
		row(s.Twice, "started twice", "because of the kill: delivery is at least once") +
		row(s.Retried, "retried", "after attempts that failed, each with its pause") +
		row(s.Failed, "failed", fmt.Sprintf("went to the failed queue, with the reason; %d requeued", s.Fixed)) +
		row(s.OnTime, "on time", fmt.Sprintf("of %d scheduled, %v after its time", s.Scheduled, ms(timeOf(s.Late))))
	if s.Other > 0 {
		text += row(s.Other, "more", "because a live peer was evicted: this machine is busy")
	}
	if s.Gaps > 0 {
		text += "\n  Some events were missed, so finished may be too low.\n"
	}
	_, err := io.WriteString(out, text)
	return err
}
