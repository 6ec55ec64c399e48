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
	Oldest  time.Time
	Version []string
	All     int
}

func (d *dashboard) workers(_ context.Context, now *snapshot, query url.Values) (*page, error) {
	body := &workersBody{Filter: query.Get("q"), All: len(now.workers), Queues: len(now.queues)}
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
