package dash

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/reading"
)

// A recurringRow is a recurring task in a list.
type recurringRow struct {
	Queue string
	inspect.RecurringTask
}

// Often says how often it recurs: its expression or, without one, by its next times.
func (r recurringRow) Often() string {
	switch shortest, longest := r.Gaps(); {
	case r.Expression != "":
		return r.Expression
	case longest == 0:
		return ""
	case shortest == longest:
		return "every " + span(longest)
	default:
		return "every " + span(shortest) + " to " + span(longest)
	}
}

// Took is how long after its time the last occurrence ended; 0 if that isn't known.
func (r recurringRow) Took() time.Duration {
	last := r.Last()
	if last.DueAt.IsZero() || !last.At.After(last.DueAt) {
		return 0
	}
	return last.At.Sub(last.DueAt)
}

type recurringBody struct {
	Rows   []recurringRow
	Pager  pager
	Queue  string // "" is all
	Filter string
	Known  int  // before the filter
	Late   bool // they're older, or incomplete
	Err    string
}

func (d *dashboard) recurring(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	body := &recurringBody{Queue: query.Get("name"), Filter: query.Get("q")}
	p := &page{Name: "recurring", Tab: "recurring", Heading: "Recurring", Query: query, Now: now, Live: []string{"recurring-rows"}, Body: body}
	if body.Queue != "" {
		if _, err := known(now, body.Queue); err != nil {
			return nil, err
		}
	}
	p.Banners = d.banners(now, body.Queue)
	if body.Late = now.err != nil; body.Late {
		return p, nil
	}
	all, late, err := d.recur.current(ctx, now)
	if body.Late = late; err != nil {
		body.Err = printable(err.Error())
	}
	for _, r := range all {
		if body.Queue != "" && r.Queue != body.Queue {
			continue
		}
		if body.Known++; strings.Contains(strings.ToLower(r.Queue+"\n"+r.Key), strings.ToLower(body.Filter)) {
			body.Rows = append(body.Rows, r)
		}
	}
	body.Rows, body.Pager = paged(body.Rows, "recurring", query)
	return p, nil
}

// recurrences has the recurring tasks of all queues. They aren't part of a snapshot, since Redis
// doesn't count them, and each queue must be read.
type recurrences struct {
	peer *worqr.Peer

	mu      sync.Mutex // protects the fields below
	at      time.Time  // when they were read; zero before the first time
	took    time.Duration
	reading chan struct{} // closed when the reading in progress ends; nil if there is none
	all     []recurringRow
	err     error
}

// How old the list may be, and how many are read.
const (
	recurringEvery = time.Second
	mostRecurring  = 10_000
)

// current returns the recurring tasks, next one first, and whether they may be out of date.
func (r *recurrences) current(ctx context.Context, now *snapshot) (all []recurringRow, late bool, err error) {
	r.mu.Lock()
	fresh := !r.at.IsZero() && time.Since(r.at) < max(recurringEvery, 20*r.took)
	done := r.reading
	if done == nil && !fresh {
		done = make(chan struct{})
		r.reading = done
		names := make([]string, len(now.queues))
		for i, q := range now.queues {
			names[i] = q.name
		}
		go r.read(names, done)
	}
	r.mu.Unlock()
	if !fresh {
		late = !await(ctx, done, patience)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all, late, r.err
}

// forget makes the next call read the list again, after an action.
func (r *recurrences) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
}

func (r *recurrences) rows(ctx context.Context, name string) (rows []recurringRow, err error) {
	all, _, err := first(r.peer.Queue(name).Recurring(ctx), mostRecurring)
	for _, t := range all {
		rows = append(rows, recurringRow{name, t})
	}
	return rows, err
}

// read reads all queues, several at a time.
func (r *recurrences) read(names []string, done chan struct{}) {
	defer close(done)
	ctx, end := context.WithTimeout(context.Background(), readTimeout)
	defer end()
	begun := time.Now()
	rows := func(ctx context.Context, i int) ([]recurringRow, error) { return r.rows(ctx, names[i]) }
	lists, errs, answered := reading.Each(ctx, len(names), perQueue, rows)
	var all []recurringRow
	var failure error // the first one
	for i, rows := range lists {
		all = append(all, rows[:min(len(rows), mostRecurring-len(all))]...)
		if errs[i] != nil && failure == nil {
			failure = fmt.Errorf("queue %q: %w", names[i], errs[i])
		}
	}
	slices.SortFunc(all, func(a, b recurringRow) int {
		return cmp.Or(a.Next.Compare(b.Next), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Key, b.Key))
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.took, r.reading, r.err = begun, max(answered.Sub(begun), 0), nil, failure
	if failure == nil || len(all) > 0 {
		r.all = all
	}
}
