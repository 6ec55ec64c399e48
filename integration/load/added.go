package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

const (
	header = "task"           // its value is the task's name
	kept   = 30 * time.Minute // how long results are kept
)

// add adds tasks with properties, and returns the key of the first. A call of Wait may follow for a
// single one.
func (p *peer) add(ctx, serving context.Context, d *rand.Rand, tasks []string) (key string, err error) {
	q, payloads := p.queue, payloads(tasks)
	if len(tasks) > 1 {
		all := make([]worqr.TaskSpec, len(tasks))
		for i, task := range tasks {
			all[i] = worqr.TaskSpec{Payload: payloads[i], Headers: map[string]string{header: task}}
		}
		keys, err := q.Add(ctx, all...)
		if err != nil {
			return "", err
		}
		return keys[0], nil
	}
	one := worqr.TaskSpec{Payload: payloads[0], Headers: map[string]string{header: tasks[0]}}
	waits := d.IntN(2) == 0
	if waits {
		one.KeepResult = kept
	}
	add := func() error {
		keys, err := q.Add(ctx, one)
		if err == nil {
			key = keys[0]
		}
		return err
	}
	if d.IntN(2) == 0 {
		one.Once = tasks[0]
		err = p.certainly(ctx, add)
	} else {
		err = add()
	}
	if waits && err == nil {
		p.pending.Go(func() { p.wait(serving, key, tasks[0]) })
	}
	return key, err
}

// wait waits for the end of a task, and reports the result.
func (p *peer) wait(ctx context.Context, key, task string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := Event{Op: OpWait, Phase: Invoke, Tasks: []string{task}}
	p.say(e)
	end, err := p.queue.Wait(ctx, key)
	switch {
	case err == nil:
		e.Phase, e.Note = Okay, string(end.Outcome)
	case errors.Is(err, worqr.ErrNoResult):
		e.Phase, e.Note = Refused, err.Error()
	default: // it timed out
		e.Phase, e.Note = Unknown, err.Error()
	}
	p.say(e)
}

// carries checks that the header of a task is its name. It returns "" if so.
func carries(t *worqr.Task, task string) string {
	if of := t.Headers[header]; of != "" && of != task {
		return NoteOther + of
	}
	return ""
}

// listen reports events that Redis has lost writes.
func (p *peer) listen(ctx context.Context) {
	for ctx.Err() == nil {
		for e, err := range p.peer.Events(ctx, p.Queue) {
			if err == nil && e.Kind == inspect.EventLost {
				p.say(Event{Op: OpLost, Note: e.Evidence})
			}
		}
		time.Sleep(50 * time.Millisecond) // before the next try
	}
}
