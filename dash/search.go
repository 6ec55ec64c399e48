package dash

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A group is failed tasks with the same cause.
type group struct {
	ID     string
	Kind   string
	Reason string
	Count  int
	Last   time.Time // when the newest task failed
	First  time.Time // when the oldest task failed
}

// Limits of a search.
const (
	mostGroups   = 200
	mostSearched = 5_000 // failed tasks, the newest ones
	searchTime   = time.Second
)

// A failedRow is a failed task in a list.
type failedRow struct {
	ID      string
	Key     string
	Kind    string
	Error   string
	Payload string
	Link    string
	At      time.Time
	Retries int
	Crashes int
}

// A result is what a search of a failed queue has found.
type result struct {
	Seen    int
	Matched int
	Groups  []group     // the most frequent first
	Rows    []failedRow // the newest first
	Cut     bool        // there are more tasks than were searched
	Err     string
}

// search searches the newest tasks of a failed queue, as far as they're read in time.
func (d *dashboard) search(ctx context.Context, queue string, f *filter) *result {
	ctx, end := context.WithTimeout(ctx, searchTime)
	defer end()
	r, groups := &result{}, map[string]*group{}
	for t, err := range d.peer.Queue(queue).Failed(ctx) {
		if err != nil && ctx.Err() == nil {
			r.Err = printable(err.Error())
			break
		}
		if err != nil || r.Seen == mostSearched {
			r.Cut = true
			break
		}
		r.Seen++
		if !f.picks(d, queue, &t) {
			continue
		}
		r.Matched++
		note(groups, &t)
		if len(r.Rows) < mostRows {
			r.Rows = append(r.Rows, failedRow{
				ID: t.ID, Key: t.Key, Kind: string(t.Kind), Error: line(t.Error, 300), Payload: line(d.payload(queue, t.Payload, shownInLists), 160),
				Link: taskLink(queue, t.Key, t.Payload), At: t.FailedAt, Retries: t.Retries, Crashes: t.Crashes,
			})
		}
	}
	for _, g := range groups {
		r.Groups = append(r.Groups, *g)
	}
	slices.SortFunc(r.Groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	return r
}

// note counts a task in its group. Tasks that OnFailed will retry aren't in the order of their failures.
func note(groups map[string]*group, t *inspect.FailedTask) {
	id := groupOf(t)
	g := groups[id]
	switch {
	case g == nil && len(groups) == mostGroups:
		return
	case g == nil:
		g = &group{ID: id, Kind: string(t.Kind), Reason: cmp.Or(alike(t), "(no text)"), First: t.FailedAt, Last: t.FailedAt}
		groups[id] = g
	}
	g.Count++
	if t.FailedAt.Before(g.First) {
		g.First = t.FailedAt
	}
	if t.FailedAt.After(g.Last) {
		g.Last = t.FailedAt
	}
}
