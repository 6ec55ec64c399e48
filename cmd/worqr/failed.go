package main

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

type failedCommand struct {
	onQueue
	some
	confirmation
	Kind    string   `placeholder:"KIND" enum:",failed,malformed,expired,crashed" default:"" help:"Only tasks of this kind: failed, malformed, expired or crashed."`
	Reason  *pattern `placeholder:"REGEX" help:"Only tasks whose error matches, such as 'timeout|refused'."`
	Payload *pattern `placeholder:"REGEX" help:"Only tasks whose payload matches."`
	Header  headers  `placeholder:"NAME=VALUE" help:"Only tasks with this header. May be repeated."`
	Since   period   `placeholder:"DURATION" help:"Only tasks that failed within this time, such as 2h."`
	Group   bool     `help:"Count the tasks by kind and error, instead of listing them. Errors that differ only in ids, numbers or quoted text count as one."`
	Requeue bool     `help:"Requeue the matching tasks, after asking."`
	Delete  bool     `help:"Delete the matching tasks, after asking."`
}

func (c *failedCommand) Validate() error {
	acts := c.Requeue || c.Delete
	switch {
	case c.Requeue && c.Delete:
		return usage("expected --requeue or --delete, not both")
	case c.Group && acts:
		return usage("--group can't be combined with --requeue or --delete")
	case c.Limit > 0 && acts:
		return usage("--limit can't be combined with --requeue or --delete")
	}
	return c.given(string(c.Queue))
}

func (c *failedCommand) matches(t inspect.FailedTask, from time.Time) bool {
	for name, value := range c.Header {
		if has, ok := t.Headers[name]; !ok || has != value {
			return false
		}
	}
	return (c.Kind == "" || string(t.Kind) == c.Kind) && (c.Since == 0 || !t.FailedAt.Before(from)) &&
		(c.Reason == nil || c.Reason.MatchString(t.Error)) && (c.Payload == nil || c.Payload.Match(t.Payload))
}

func (c *failedCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	from := time.Now().Add(-time.Duration(c.Since))
	matching := kept(q.Failed(ctx), func(t inspect.FailedTask) bool { return c.matches(t, from) })
	switch {
	case c.Requeue || c.Delete:
		return c.act(ctx, con, q, matching)
	case c.Group:
		return c.group(con, matching)
	}
	n, err := printRows(con.out, c.form, "FAILED KIND RETRIES ID ERROR PAYLOAD", first(c.Limit, matching), func(r inspect.FailedTask) []string {
		return []string{sinceMoment(r.FailedAt), printable(r.Kind), strconv.Itoa(r.Retries), printable(r.ID), brief(r.Error, shownPayload), brief(string(r.Payload), shownPayload)}
	})
	return toldNone(con, n, err)
}

// toldNone says so if no failed task was printed.
func toldNone(con *console, n int, err error) error {
	if err == nil && n == 0 {
		con.say("no failed task matches")
	}
	return err
}

// mostGroups limits the groups that are counted; the tasks of all other groups are counted
// together.
const mostGroups = 1000

// A groupRow counts tasks that failed for the same reason.
type groupRow struct {
	Tasks   int
	Kind    inspect.FailureKind
	Error   string
	Example string // the error of the newest task
}

// group counts tasks by why they failed, the most frequent reason first.
func (c *failedCommand) group(con *console, tasks iter.Seq2[inspect.FailedTask, error]) error {
	counts, examples := map[groupRow]int{}, map[groupRow]string{}
	for t, err := range tasks {
		if err != nil {
			return err
		}
		g := groupRow{Kind: t.Kind, Error: cmp.Or(t.Cause(), "(no text)")}
		_, known := counts[g]
		switch {
		case !known && len(counts) >= mostGroups:
			g = groupRow{Error: "(others)"}
		case !known:
			examples[g] = t.Error
		}
		counts[g]++
	}
	var groups []groupRow
	for g, n := range counts {
		g.Example = examples[g]
		g.Tasks = n
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b groupRow) int {
		return cmp.Or(b.Tasks-a.Tasks, cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Error, b.Error))
	})
	rows := func(yield func(groupRow, error) bool) {
		for _, g := range groups {
			if !yield(g, nil) {
				return
			}
		}
	}
	n, err := printRows(con.out, c.form, "TASKS KIND ERROR", first(c.Limit, rows), func(g groupRow) []string {
		return []string{words.Grouped(g.Tasks), printable(g.Kind), brief(g.Error, 200)}
	})
	return toldNone(con, n, err)
}

// atATime is how many failed tasks one call acts on.
const atATime = 1000

// act counts the matching tasks, asks, and acts on them.
func (c *failedCommand) act(ctx context.Context, con *console, q *worqr.Queue, matching iter.Seq2[inspect.FailedTask, error]) error {
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	var newest time.Time // the question didn't include tasks that fail later
	found := 0
	for t, err := range matching {
		if err != nil {
			return err
		}
		if found++; t.FailedAt.After(newest) {
			newest = t.FailedAt
		}
	}
	verb, do := "requeue", q.RequeueFailed
	if c.Delete {
		verb, do = "delete", q.DeleteFailed
	}
	acted := 0
	what := fmt.Sprintf("%s %s of %s of the queue %q", verb, words.Grouped(found), words.Counted(max(s.Failed, found), "failed task"), c.Queue)
	if found > 0 {
		if err := c.ask(ctx, con, string(c.Queue), what); err != nil {
			return err
		}
		if acted, err = c.each(ctx, kept(matching, func(t inspect.FailedTask) bool { return !t.FailedAt.After(newest) }), do); err != nil {
			return c.cutOff(con.out, err, acted, fmt.Sprintf("%s %sd", words.Counted(acted, "task"), verb), map[string]any{"matched": found, verb + "d": acted})
		}
	}
	err = c.tell(con.out, map[string]int{"matched": found, verb + "d": acted}, "%s matched, %s %sd", words.Counted(found, "task"), words.Grouped(acted), verb)
	return toldIf(found == 0 || acted < found, err)
}

// each acts on tasks, in batches of at most atATime.
func (c *failedCommand) each(ctx context.Context, tasks iter.Seq2[inspect.FailedTask, error], do func(context.Context, ...string) (int, error)) (acted int, err error) {
	ids := make([]string, 0, atATime)
	flush := func() error {
		n, err := do(ctx, ids...)
		acted += n
		ids = ids[:0]
		return err
	}
	for t, err := range tasks {
		if err != nil {
			return acted, err
		}
		if ids = append(ids, t.ID); len(ids) == atATime {
			if err := flush(); err != nil {
				return acted, err
			}
		}
	}
	if len(ids) > 0 {
		err = flush()
	}
	return acted, err
}

type requeueCommand struct {
	onQueue
	IDs []string `arg:"" name:"id" help:"Ids of failed tasks, as \"worqr failed\" shows them. They contain keys, so quote them. For all tasks, or those that match, use: worqr failed --requeue."`
}

func (c *requeueCommand) Run(ctx context.Context, con *console, q *worqr.Queue) error {
	n, err := q.RequeueFailed(ctx, c.IDs...)
	if err != nil {
		return c.cutOff(con.out, err, n, words.Counted(n, "task")+" requeued", map[string]any{"requeued": n})
	}
	if err := c.tell(con.out, map[string]int{"requeued": n}, "%s requeued", words.Counted(n, "task")); err != nil || n == len(c.IDs) {
		return err
	}
	con.say("%s not requeued: there is no such failed task, OnFailed is handling it, or a task with its key waits or runs; to list them, use: %s",
		words.Counted(len(c.IDs)-n, "id"), c.command("failed QUEUE", string(c.Queue)))
	return errTold
}
