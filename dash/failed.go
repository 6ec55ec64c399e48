package dash

import (
	"context"
	"net/url"
	"slices"

	"github.com/worqr/worqr/inspect"
)

type failedQueue struct {
	Name  string
	Count int
	Grown int
}

type failedBody struct {
	Queue  string        // "" if none was chosen
	Queues []failedQueue // those that have failed tasks, if none was chosen
	Pager  pager
	Total  int
	Result result
	Rows   []failedRow
	Bad    string // the error in the filter
	Any    bool   // nothing is filtered
	Hidden bool
	Job    *jobState
	Kinds  []inspect.FailureKind
	Group  string // the description of the chosen group
	Spans  []choice
}

// A choice is an option of a list to choose from.
type choice struct{ Value, Label string }

// since returns the times to choose from, including the one in the link.
func since(query url.Values) []choice {
	all := []choice{{"", "any time"}, {"10m", "10 minutes"}, {"1h", "hour"}, {"6h", "6 hours"}, {"24h", "day"}, {"168h", "week"}}
	given := query.Get("since")
	if !slices.ContainsFunc(all, func(c choice) bool { return c.Value == given }) {
		all = append(all, choice{given, line(given, 40)})
	}
	return all
}

func (d *dashboard) failed(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	if query.Get("name") == "" {
		return d.failedQueues(now, query), nil
	}
	state, err := known(now, query.Get("name"))
	if err != nil {
		return nil, err
	}
	name := state.name
	body := &failedBody{Queue: name, Total: state.counts.Failed, Hidden: d.hides(), Job: d.jobs.of(name), Spans: since(query),
		Kinds: []inspect.FailureKind{inspect.FailureError, inspect.FailureMalformed, inspect.FailureExpired, inspect.FailureCrashed}}
	f, err := filtered(query)
	body.Any = f.any()
	p := &page{Name: "failed", Tab: "failed", Heading: "Failed", Query: query, Now: now, Banners: d.banners(now, name),
		Live: []string{"failed-totals", "groups", "failed-rows", "job"}, Body: body}
	if err != nil {
		body.Bad = printable(err.Error())
		return p, nil
	}
	what := without(query, "page", "did", "n", "search").Encode()
	s := d.finds.get(query.Get("search"), what, func(s *search) {
		var ctx context.Context
		ctx, s.end = context.WithTimeoutCause(context.Background(), longestSearch, errLong)
		go s.run(ctx, d, name, f)
	})
	body.Result = s.result(ctx, pageIn(query)*perPage)
	query.Set("search", body.Result.ID) // so that further pages, and the stream, use the same search
	body.Rows, body.Pager = paged(body.Result.Rows, "failed", query)
	for _, g := range body.Result.Groups {
		if g.ID == f.group {
			body.Group = g.Reason
		}
	}
	return p, nil
}

func (d *dashboard) failedQueues(now *snapshot, query url.Values) *page {
	body := &failedBody{}
	for _, q := range now.queues {
		if n := q.counts.Failed; n > 0 {
			recent, _ := q.past.trend()
			body.Queues = append(body.Queues, failedQueue{q.name, n, recent.Failed})
			body.Total += n
		}
	}
	slices.SortStableFunc(body.Queues, func(a, b failedQueue) int { return b.Count - a.Count })
	body.Queues, body.Pager = paged(body.Queues, "failed", query)
	return &page{Name: "failed-queues", Tab: "failed", Heading: "Failed", Query: query, Now: now, Banners: d.banners(now, ""), Live: []string{"failed-queues-rows"}, Body: body}
}
