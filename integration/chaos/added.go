package main

import (
	"slices"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/integration/spec/lane"
)

// answers: Wait returned how the task really ended.
func (e *evidence) answers(r *report) {
	for _, t := range e.tasks {
		for _, w := range t.Waits {
			switch {
			case w.Phase == load.Okay && e.ended(t, w.Note):
				r.Told++
			case w.Phase == load.Invoke, w.Phase == load.Unknown, e.arena.forgets:
			default:
				r.violate("Wait for %s returned %q, which is wrong", t.Name, w.Note)
			}
		}
		if i := slices.IndexFunc(t.Runs, func(u *load.Run) bool { return u.Other != "" }); i >= 0 {
			r.violate("a handler of %s was given %s", t.Name, t.Runs[i].Other)
		}
	}
}

// ended reports whether a task has ended with the outcome that Wait returned.
func (e *evidence) ended(t *load.Account, how string) bool {
	ran := slices.ContainsFunc(t.Runs, func(u *load.Run) bool {
		return u.Over > 0 && u.Note != load.NoteRetry || u.Finishing > 0
	})
	var s *story
	if e.order != nil {
		s = e.order.stories[t.Name]
	}
	switch worqr.Outcome(how) {
	case worqr.OutcomeFinished:
		return ran && (e.order == nil || s != nil && s.ends > 0)
	case worqr.OutcomeFailed:
		return ran && (e.order == nil || s != nil && s.failed)
	case worqr.OutcomeCanceled:
		return t.Cancel != ""
	}
	return false // no task is removed or deleted
}

// inLine: added tasks start in the order in which they were added.
func (r *replay) inLine(was, is *lane.Lane, began []string) {
	for _, id := range began {
		name := is.AddedName(id)
		if name == "" {
			continue
		}
		entry := is.Entries[id]
		for _, w := range was.Waiters() {
			if w.Entry == entry {
				break
			}
			if slices.ContainsFunc(is.Waiters(), func(left lane.Waiter) bool { return left.ID == w.ID }) {
				r.violate("%s starts, but %s was added before it", load.TaskOf(is.Process[id]), load.TaskOf(w.Payload))
			}
		}
	}
}
