package dash

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

type workersBody struct {
	Rows    []inspect.Worker
	Pager   pager
	Filter  string
	Stuck   int
	Queues  int
	Version []string
	All     int
	Runs    map[string]load // what each runs, by its id
	Counted bool            // Runs is known
}

// A load is what a worker runs.
type load struct {
	Tasks  int
	Oldest time.Time // when the first of them started
}

// mostLoad is how many running tasks are counted, at most.
const mostLoad = 1_000

// loads counts the tasks that workers run. It reads all of them, so it counts only a few, while the page is open.
func (d *dashboard) loads(ctx context.Context, now *snapshot) map[string]load {
	if now.err != nil || now.Total.Running > mostLoad {
		return nil
	}
	ctx, end := context.WithTimeout(ctx, listTime)
	defer end()
	all := map[string]load{}
	for _, q := range now.queues {
		if q.counts.Running == 0 {
			continue
		}
		for t, err := range d.peer.Queue(q.name).Running(ctx) {
			if err != nil {
				return nil
			}
			l := all[t.WorkerID]
			if l.Tasks++; l.Oldest.IsZero() || t.StartedAt.Before(l.Oldest) {
				l.Oldest = t.StartedAt
			}
			all[t.WorkerID] = l
		}
	}
	return all
}

func (d *dashboard) workers(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	body := &workersBody{Filter: query.Get("q"), All: len(now.workers), Queues: len(now.queues), Runs: d.loads(ctx, now)}
	body.Counted = body.Runs != nil
	var picked []inspect.Worker
	versions := map[string]bool{}
	for _, w := range now.workers {
		body.Stuck += w.StuckHandlers
		versions[w.Version] = true
		of := strings.ToLower(strings.Join(append([]string{w.ID, w.Name, w.Host, w.Version}, w.Queues...), "\n"))
		if strings.Contains(of, strings.ToLower(body.Filter)) {
			picked = append(picked, w)
		}
	}
	body.Version = slices.Sorted(maps.Keys(versions))
	body.Rows, body.Pager = paged(picked, "workers", query)
	return &page{Name: "workers", Tab: "workers", Heading: "Workers", Query: query, Now: now, Banners: d.banners(now, ""), Live: []string{"workers-totals", "workers-rows"}, Body: body}, nil
}
