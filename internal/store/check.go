package store

import (
	"context"
	"strings"

	"github.com/worqr/worqr/internal/invariants"
	"github.com/worqr/worqr/internal/keys"
)

var (
	check  = verb("check", asWorker)
	repair = verb("repair", asWorker)
)

// Examined are the kinds of keys that a check goes through, in order; the first two say who may hold tasks. Others are found by their names: attempts and
// workers that hold some.
var Examined = strings.Fields("workers leaving suspects idle rounds tasks runs next ready schedule risky aside copies recurring recurrence")

// The kinds of what a check is given by name.
const (
	Attempts = "attempts"
	Holders  = "workers"
)

// A Part is what a part of a queue's keys says, at one moment.
type Part struct {
	invariants.State
	About []About // for each of Names
}

// Check reads a part of a queue: the next page of a kind of key, from "0" on, or these attempts or
// workers, at most 100. It returns where the next page begins, "0" after the last. It changes nothing.
func Check(ctx context.Context, r Runner, q keys.Queue, kind, cursor string, names []string) (p Part, next string, err error) {
	args := []any{kind, cursor}
	for _, name := range names {
		args = append(args, name)
	}
	in := check.ask(ctx, r, q, args...)
	next = in.string()
	p.Queue = in.queue()
	page := in.list()
	page.each(func() {
		one := page.list()
		switch kind {
		case Attempts:
			p.Attempts = append(p.Attempts, one.attemptFacts())
		case "workers", "suspects", "leaving", "idle", "rounds":
			p.Workers = append(p.Workers, one.worker())
		case "recurring", "recurrence":
			p.Schedules = append(p.Schedules, one.schedule())
		default:
			about := one.about(q.IsFailed())
			p.About, p.Names = append(p.About, about), append(p.Names, about.facts)
		}
		page.join(one)
	})
	in.join(page)
	return p, next, in.err
}

func (d *decoder) attemptFacts() invariants.Attempt {
	a := invariants.Attempt{ID: d.string(), HasList: d.int() == 1}
	_, a.Held = d.maybeInt()
	a.Name, _ = d.maybe()
	a.Runs, _ = d.maybe()
	a.Worker, a.Named = WorkerOf(a.ID), strings.HasSuffix(a.ID, "n")
	return a
}

func (d *decoder) worker() (w invariants.Worker) {
	w.ID = d.string()
	w.Deadline, _ = d.maybe()
	_, w.HasRound = d.maybe()
	_, w.Leaving = d.maybe()
	w.Suspect, _ = d.maybe()
	_, w.Idle = d.maybe()
	w.Highest = d.int()
	return w
}

func (d *decoder) schedule() (s invariants.Schedule) {
	s.Name = d.string()
	s.Until, _ = d.maybe()
	if times, there := d.maybe(); there {
		s.Times = append([]string{}, strings.Fields(times)...)
	}
	s.Passed, _ = d.maybe()
	s.Prints, _ = d.maybe()
	return s
}

// Repair mends a flaw, if it's still there, and reports whether it has. After that of an attempt or of
// a worker, call Evict until there's nothing more to do: it returns the tasks.
func Repair(ctx context.Context, r Runner, q keys.Queue, f invariants.Found) (mended bool, err error) {
	in := repair.ask(ctx, r, q, string(f.Flaw), f.Name, f.Detail)
	return in.int() == 1, in.err
}
