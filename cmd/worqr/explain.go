package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

type explainCommand struct {
	onQueue
	Payload *string `arg:"" optional:"" help:"Payload of the task. Without it, --key or --header, the payload is read from standard input, byte for byte: use printf, since echo adds a newline. For an empty payload, pass \"\"."`
	Key     *string `placeholder:"KEY" help:"Explain the tasks under this key, whatever their payload."`
	Header  *string `placeholder:"NAME=VALUE" help:"Explain up to ten tasks with this header, and show their keys."`
}

func (c *explainCommand) Validate() error {
	given := 0
	for _, by := range []*string{c.Payload, c.Key, c.Header} {
		if by != nil {
			given++
		}
	}
	switch {
	case given > 1 && c.Header == nil:
		return usage("expected a payload or --key, not both")
	case given > 1:
		return usage("expected one of a payload, --key and --header")
	case c.Header != nil && !strings.Contains(*c.Header, "="):
		return usage("the value of --header is not valid; write NAME=VALUE")
	}
	return nil
}

// An explanationRow is where a task is, why it doesn't run, and the commands that help.
type explanationRow struct {
	*inspect.Explanation
	Fixes []string
}

func (c *explainCommand) Run(ctx context.Context, con *console, f *fleet) error {
	e, err := c.explain(ctx, f.Queue(string(c.Queue)), con)
	if err != nil {
		return err
	}
	fixes, names := c.fixesOf(e), map[string]string{}
	if !c.JSON && slices.ContainsFunc(e.Copies, func(t inspect.TaskCopy) bool { return len(t.Attempts) > 0 }) {
		names = workerNames(ctx, f)
	}
	err = c.tell(con.out, explanationRow{e, fixes}, "%s", c.text(e, fixes, names))
	if err == nil && len(e.Copies) == 0 && e.NotSearched > 0 {
		return fmt.Errorf("not found in the first 100,000 tasks; not searched: %s", words.Counted(e.NotSearched, "task"))
	}
	return toldIf(len(e.Copies) == 0 && e.Recurs == nil, err)
}

// text returns the explanation in sentences, with the attempts that failed and advice, and with the keys if they
// distinguish copies. names are those of workers.
func (c *explainCommand) text(e *inspect.Explanation, fixes []string, names map[string]string) string {
	lines := e.Sentences()
	for i, t := range e.Copies {
		if c.Header != nil {
			lines[i] = keyText(t.Key) + ": " + lines[i]
		}
		lines[i] += attemptsText(t.Attempts, names)
	}
	for _, fix := range fixes {
		lines = append(lines, "  try: "+fix)
	}
	if slices.ContainsFunc(e.Copies, func(t inspect.TaskCopy) bool { return slices.Contains(t.Reasons, inspect.ReasonNoWorker) }) {
		lines = append(lines, "  "+c.service(e.Queue))
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

func (c *explainCommand) explain(ctx context.Context, q *worqr.Queue, con *console) (*inspect.Explanation, error) {
	var by worqr.Query
	switch {
	case c.Key != nil:
		by.Key = *c.Key
	case c.Header != nil:
		by.Header, by.Value, _ = strings.Cut(*c.Header, "=")
	default:
		var err error
		if by.Payload, err = con.payload(ctx, c.Payload); err != nil {
			return nil, err
		}
	}
	return q.Explain(ctx, by)
}
