package dash

import (
	"cmp"
	"context"
	"iter"
	"net/url"
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
)

// Limits of listings: the rows that can be shown, and how many running tasks are compared.
const (
	mostRows    = 1_000
	mostRunning = 500
)

// listTime is how long reading a list may take. The page shows what was read by then.
const listTime = 200 * time.Millisecond

// A taskRow is a task in a list.
type taskRow struct {
	Key     string
	Payload string
	Hidden  bool
	Link    string
	Worker  *inspect.Worker
	ID      string // of its worker
	State   inspect.NamedState
	At      time.Time
	Retries int
	Crashes int
	Error   string
}

type queueBody struct {
	Name   string
	At     time.Time // when the counts were read; zero if they never were
	Counts inspect.QueueStats
	Pace   pace
	Charts []*chart
	Span   string // of the charts
	NoPast string // why there are none
	Tab    string
	Count  map[string]int // of the tabs' tasks
	Rows   []taskRow
	Pager  pager
	More   bool // there may be more rows than can be listed
	Late   bool // there was no time to read more
	Err    string
	Job    *jobState
}

func (d *dashboard) queue(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	state, err := known(now, query.Get("name"))
	if err != nil {
		return nil, err
	}
	body := &queueBody{Name: state.name, At: state.at, Counts: state.counts, Pace: state.pace, Charts: charts(state.past, cmp.Or(state.at, now.At)), Job: d.jobs.of(state.name)}
	c := state.counts
	body.Count = map[string]int{"waiting": c.Waiting - c.Named, "named": c.Named, "scheduled": c.Scheduled, "running": c.Running}
	if body.Tab = query.Get("tab"); body.Tab == "" {
		full := slices.IndexFunc(tabs, func(t tab) bool { return body.Count[t.Name] > 0 })
		body.Tab = tabs[max(full, 0)].Name
		query.Set("tab", body.Tab) // so that the stream stays on it
	}
	live := []string{"queue-totals", "drain", "charts", "tasks", "job", "lists"}
	if d.opts.AllowActions {
		live = append(live, "pause")
	}
	if of := spanNamed(query.Get("span")); of.Name != "" && now.err == nil {
		body.Span = of.Name
		if body.Charts, err = d.past(ctx, state.name, of); err != nil {
			body.NoPast = printable(err.Error())
		}
	}
	if body.Err = "Redis doesn't answer."; now.err == nil {
		body.Err = ""
		d.list(ctx, now, query, body)
	}
	banners := slices.DeleteFunc(d.banners(now, state.name), func(b banner) bool { return b.Kind == "paused" }) // the page says so itself
	return &page{Name: "queue", Tab: "overview", Heading: state.name, Query: query, Now: now, Banners: banners,
		Live: live, Body: body}, nil
}

func (d *dashboard) list(ctx context.Context, now *snapshot, query url.Values, body *queueBody) {
	name := body.Name
	var err error
	q := d.peer.Queue(name)
	until := min(pageIn(query)*perPage+1, mostRows) // one more, to learn whether there are more
	row := func(key string, payload []byte) taskRow {
		return taskRow{Key: key, Payload: line(d.payload(name, payload, shownInLists), 160), Link: taskLink(name, key, payload)}
	}
	ctx, end := context.WithTimeout(ctx, listTime)
	defer end()
	switch body.Tab {
	case "running":
		var all []inspect.RunningTask
		all, body.More, err = first(q.Running(ctx), mostRunning)
		slices.SortFunc(all, func(a, b inspect.RunningTask) int { return a.StartedAt.Compare(b.StartedAt) })
		for _, t := range all {
			r := row(t.Key, t.Payload)
			r.At, r.ID, r.Worker = t.StartedAt, t.WorkerID, now.worker(t.WorkerID)
			r.Retries, r.Crashes, r.Error = t.Retries, t.Crashes, printable(t.LastError)
			body.Rows = append(body.Rows, r)
		}
	case "named", "scheduled":
		states := []inspect.NamedState{inspect.NamedReady, inspect.NamedRisky}
		if body.Tab == "scheduled" {
			states = []inspect.NamedState{inspect.NamedScheduled, inspect.NamedBlocked}
		}
		var all []inspect.NamedTask
		all, body.More, err = first(q.Named(ctx, states...), until)
		for _, t := range all {
			r := row(t.Key, t.Payload)
			r.State, r.Retries, r.Crashes, r.Error = t.State, t.Retries, t.Crashes, printable(t.LastError)
			if r.At = t.EnqueuedAt; body.Tab == "scheduled" {
				r.At = t.DueAt
			}
			body.Rows = append(body.Rows, r)
		}
	default:
		var all [][]byte
		all, body.More, err = first(q.Tasks(ctx), until)
		for _, payload := range all {
			body.Rows = append(body.Rows, row("", payload))
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		body.Late = true
	case err != nil:
		body.Err = printable(err.Error())
	}
	body.Rows, body.Pager = paged(body.Rows, "queue", query)
	body.Pager.All = max(body.Pager.All, body.Count[body.Tab]) // not all were read
}

// first returns the first rows of a listing, and whether there may be more.
func first[T any](all iter.Seq2[T, error], most int) (some []T, more bool, err error) {
	for row, err := range all {
		if err != nil {
			return some, false, err
		}
		if some = append(some, row); len(some) == most {
			return some, true, nil
		}
	}
	return some, false, nil
}

// taskLink returns the link to the page of a task. It has the payload's digest: links end up in logs.
func taskLink(queue, key string, payload []byte) string {
	if key != "" {
		return link("task", "name", queue, "key", key)
	}
	return link("task", "name", queue, "digest", digest(payload))
}
