package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// A sought task is given by one of these.
type sought struct {
	Payload *string `arg:"" optional:"" help:"Payload of the task. Without it, --key or --header, the payload is read from standard input, byte for byte: use printf, since echo adds a newline. For an empty payload, pass \"\"."`
	Key     *string `placeholder:"KEY" help:"Explain the tasks under this key, whatever their payload."`
	Header  *string `placeholder:"NAME=VALUE" help:"Explain up to ten tasks of a queue with this header, and show their keys."`
}

func (s *sought) Validate() error {
	given := 0
	for _, by := range []*string{s.Payload, s.Key, s.Header} {
		if by != nil {
			given++
		}
	}
	switch {
	case given > 1 && s.Header == nil:
		return usage("expected a payload or --key, not both")
	case given > 1:
		return usage("expected one of a payload, --key and --header")
	case s.Header != nil && !strings.Contains(*s.Header, "="):
		return usage("the value of --header is not valid; write NAME=VALUE")
	}
	return nil
}

func (s *sought) query(ctx context.Context, con *console) (by worqr.Query, err error) {
	switch {
	case s.Key != nil:
		by.Key = *s.Key
	case s.Header != nil:
		by.Header, by.Value, _ = strings.Cut(*s.Header, "=")
	default:
		by.Payload, err = con.payload(ctx, s.Payload)
	}
	return by, err
}

type explainCommand struct {
	onQueue
	sought
}

// An explanationRow is where a task is, why it doesn't run, and the commands that help.
type explanationRow struct {
	*inspect.Explanation
	Fixes []string
}

func (c *explainCommand) Run(ctx context.Context, con *console, f *fleet) error {
	by, err := c.query(ctx, con)
	if err != nil {
		return err
	}
	e, err := f.Queue(string(c.Queue)).Explain(ctx, by)
	if err != nil {
		return err
	}
	err = c.explained(ctx, con, f, c.form, &c.target, e)
	if err == nil && len(e.Copies) == 0 && e.NotSearched > 0 {
		return notFound(e.NotSearched)
	}
	return toldIf(len(e.Copies) == 0 && e.Recurs == nil, err)
}

type findCommand struct {
	target
	form
	sought
}

func (c *findCommand) Run(ctx context.Context, con *console, f *fleet) error {
	by, err := c.query(ctx, con)
	if err != nil {
		return err
	}
	names, err := f.names(ctx, nil)
	if err != nil {
		return err
	}
	found, bad, left := 0, 0, 0
	for e, err := range eachOf(ctx, names, func(ctx context.Context, name queueName) (*inspect.Explanation, error) {
		return f.Queue(string(name)).Explain(ctx, by)
	}) {
		u := asUnread(err)
		switch {
		case errors.Is(err, worqr.ErrInvalid), errors.Is(err, worqr.ErrTooLarge): // of what was given
			err = cmp.Or(errors.Unwrap(err), err)
		case u != nil:
			bad++
			err = c.tell(con.out, u.row(), "%s", printable(u.Error()))
		case err != nil:
		case len(e.Copies) > 0 || e.Recurs != nil:
			found++
			err = c.explained(ctx, con, f, c.form, &c.target, e)
		default:
			left += e.NotSearched
		}
		if err != nil {
			return err
		}
	}
	switch {
	case bad > 0:
		return someUnread(bad)
	case found > 0:
		return nil
	case len(names) == 0:
		return nothing(fmt.Sprintf("no queues under the prefix %q; check --prefix and --redis", c.Prefix))
	case left > 0:
		return notFound(left)
	}
	return nothing("no queue has the task: it was never enqueued, or it's done, canceled or deleted")
}

func notFound(left int) error {
	return fmt.Errorf("not found; further back, %s searched", words.Tasks(left, "wasn't", "weren't"))
}

// explained prints an explanation, and the commands that help.
func (s *sought) explained(ctx context.Context, con *console, f *fleet, as form, t *target, e *inspect.Explanation) error {
	fixes, names := t.fixesOf(e), map[string]string{}
	if !as.JSON && slices.ContainsFunc(e.Copies, func(t inspect.TaskCopy) bool { return len(t.Attempts) > 0 }) {
		names = workerNames(ctx, f)
	}
	return as.tell(con.out, explanationRow{e, fixes}, "%s", s.text(t, e, fixes, names))
}

// text returns the explanation in sentences, with the attempts that failed and advice, and with the keys if they
// distinguish copies. names are those of workers.
func (s *sought) text(t *target, e *inspect.Explanation, fixes []string, names map[string]string) string {
	lines := e.Sentences()
	for i, found := range e.Copies {
		if s.Header != nil {
			lines[i] = keyText(found.Key) + ": " + lines[i]
		}
		lines[i] += attemptsText(found.Attempts, names)
	}
	for _, fix := range fixes {
		lines = append(lines, "  try: "+fix)
	}
	if slices.ContainsFunc(e.Copies, func(t inspect.TaskCopy) bool { return slices.Contains(t.Reasons, inspect.ReasonNoWorker) }) {
		lines = append(lines, "  "+t.service(e.Queue))
	}
	return strings.Join(lines, "\n")
}

// attemptsText returns attempts as lines of a table; "" if there are none.
func attemptsText(attempts []inspect.Attempt, names map[string]string) string {
	var b strings.Builder
	rows := func(yield func(inspect.Attempt, error) bool) {
		for _, a := range attempts {
			if !yield(a, nil) {
				return
			}
		}
	}
	_, _ = printRows(&b, form{}, "FAILED TOOK WORKER ERROR", rows, func(a inspect.Attempt) []string {
		return []string{sinceMoment(a.EndedAt), age(a.EndedAt.Sub(a.StartedAt)), printable(cmp.Or(names[a.WorkerID], a.WorkerID)), brief(a.Error, 200)}
	})
	return strings.ReplaceAll(strings.TrimSuffix("\n"+b.String(), "\n"), "\n", "\n  ")
}
