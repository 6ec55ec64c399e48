package dash

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/reading"
)

// A recurringRow is a recurring task in a list.
type recurringRow struct {
	Queue string
	inspect.RecurringTask
}

// Bad reports whether the last occurrence failed or didn't run.
func (r recurringRow) Bad() bool {
	return r.LastOutcome != "finished" && r.LastOutcome != "skipped" && r.LastOutcome != "canceled"
}

type recurringBody struct {
	Rows   []recurringRow
	Pager  pager
	Queue  string // "" is all
	Filter string
	Known  int // before the filter
	Err    string
}

func (d *dashboard) recurring(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	body := &recurringBody{Queue: query.Get("name"), Filter: query.Get("q")}
	p := &page{Name: "recurring", Tab: "recurring", Heading: "Recurring", Query: query, Now: now, Live: []string{"recurring-rows"}, Body: body}
	var names []string
	if body.Queue != "" {
		if _, err := known(now, body.Queue); err != nil {
			return nil, err
		}
		names = append(names, body.Queue)
	} else {
		for _, q := range now.queues {
			names = append(names, q.name)
		}
	}
	p.Banners = d.banners(now, body.Queue)
	if now.err != nil {
		return p, nil
	}
	all, err := d.recurrences(ctx, names)
	if err != nil {
		body.Err = printable(err.Error())
	}
	body.Known = len(all)
	body.Rows = slices.DeleteFunc(all, func(r recurringRow) bool {
		return !strings.Contains(strings.ToLower(r.Queue+"\n"+r.Key), strings.ToLower(body.Filter))
	})
	body.Rows, body.Pager = paged(body.Rows, "recurring", query)
	return p, nil
}

// mostRecurring limits the recurring tasks of a queue that are read.
const mostRecurring = 10_000

// recurrences returns the recurring tasks of queues, the next one first, and the first error. They aren't part of a
// snapshot, since Redis doesn't count them, and each queue must be read.
func (d *dashboard) recurrences(ctx context.Context, names []string) (all []recurringRow, failed error) {
	rows, errs := make([][]recurringRow, len(names)), make([]error, len(names))
	reading.Each(ctx, len(names), reading.Limits{AtOnce: atOnce, Each: queueTimeout}, func(ctx context.Context, i int) {
		some, _, err := first(d.peer.Queue(names[i]).Recurring(ctx), mostRecurring)
		for _, t := range some {
			rows[i] = append(rows[i], recurringRow{names[i], t})
		}
		errs[i] = reading.Cause(ctx, err)
	}, func(i int, cause error) { errs[i] = cause })
	for i, err := range errs {
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("queue %q: %w", names[i], err))
		}
	}
	all = slices.Concat(rows...)
	slices.SortFunc(all, func(a, b recurringRow) int {
		return cmp.Or(a.Next.Compare(b.Next), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Key, b.Key))
	})
	return all, failed
}
