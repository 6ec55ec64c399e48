package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/spec/lane"
)

const (
	header = "task"           // its value is the name of the task
	kept   = 30 * time.Minute // results
)

// add adds a task that has a card. Somebody may wait for its end.
func (c *chaotic) add(ctx, serving context.Context, d *rand.Rand, q *worqr.Queue, task string, payload []byte) (key string, err error) {
	props := &worqr.Properties{Headers: map[string]string{header: task}}
	waits := d.IntN(2) == 0
	if waits {
		props.KeepResult = kept
	}
	if d.IntN(2) == 0 { // to be repeated until it is certain
		props.Once = task
	}
	for perhaps := false; ; perhaps = true {
		key, err = q.Add(ctx, payload, props)
		if props.Once != "" && errors.Is(err, worqr.ErrUnknownOutcome) && ctx.Err() == nil {
			continue
		}
		if err != nil && perhaps {
			err = fmt.Errorf("%w: %w", worqr.ErrUnknownOutcome, err)
		}
		break
	}
	if waits && err == nil {
		c.pending.Go(func() { c.wait(serving, q, key, task) })
	}
	return key, err
}

// addMany adds tasks that have cards, and returns the key of the first.
func (c *chaotic) addMany(ctx context.Context, q *worqr.Queue, tasks []string, payloads [][]byte) (key string, err error) {
	all := make([]worqr.TaskSpec, len(tasks))
	for i := range all {
		all[i] = worqr.TaskSpec{Payload: payloads[i], Properties: worqr.Properties{Headers: map[string]string{header: tasks[i]}}}
	}
	keys, err := q.AddMany(ctx, all)
	if err != nil {
		return "", err
	}
	return keys[0], nil
}

// wait waits for the end of a task, and writes down what it is told.
func (c *chaotic) wait(ctx context.Context, q *worqr.Queue, key, task string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c.say(event{Op: opWait, Phase: invoke, Tasks: []string{task}})
	end, err := q.Wait(ctx, key)
	switch {
	case err == nil:
		c.say(event{Op: opWait, Phase: okay, Tasks: []string{task}, Note: string(end.Outcome)})
	case errors.Is(err, worqr.ErrNoResult):
		c.say(event{Op: opWait, Phase: refused, Tasks: []string{task}, Note: err.Error()})
	default: // it had no time
		c.say(event{Op: opWait, Phase: unknown, Tasks: []string{task}, Note: err.Error()})
	}
}

// noteOther says that a handler was given what is of another task.
const noteOther = "the header of another task: "

// carries compares the header of a task with its name; "" where that is as it should be.
func carries(t *worqr.Task, task string) string {
	if of := t.Headers[header]; of != "" && of != task {
		return noteOther + of
	}
	return ""
}

// answers: who waits for the end of a task is told what it was.
func (e *evidence) answers(r *report) {
	for _, t := range e.tasks {
		for _, w := range t.waits {
			switch {
			case w.Phase == okay && e.ended(t, w.Note):
				r.Told++
			case w.Phase == invoke, w.Phase == unknown, e.arena.forgets:
			default:
				r.violate("who waits for %s is told %q, and that is not so", t.name, w.Note)
			}
		}
		if i := slices.IndexFunc(t.runs, func(u *run) bool { return u.other != "" }); i >= 0 {
			r.violate("a handler of %s was given %s", t.name, t.runs[i].other)
		}
	}
}

// ended reports whether a task has ended in a way.
func (e *evidence) ended(t *account, how string) bool {
	ran := slices.ContainsFunc(t.runs, func(u *run) bool { return u.over > 0 && u.note != noteRetry || u.finishing > 0 })
	var s *story
	if e.order != nil {
		s = e.order.stories[t.name]
	}
	switch worqr.Outcome(how) {
	case worqr.OutcomeFinished:
		return ran && (e.order == nil || s != nil && s.ends > 0)
	case worqr.OutcomeFailed:
		return ran && (e.order == nil || s != nil && s.failed)
	case worqr.OutcomeCanceled:
		return t.cancel != ""
	}
	return false // nobody removes or deletes any
}

// inLine: added tasks start in their order.
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
				r.violate("%s starts, and %s was added before", taskOf(is.Process[id]), taskOf(w.Payload))
			}
		}
	}
}
