package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

type historyCommand struct {
	onQueue
	Hours uint `placeholder:"N" xor:"span" help:"Show the last N hours, up to 24; the default is 3."`
	Days  uint `placeholder:"N" xor:"span" help:"Show the last N days, up to 60."`
	Weeks uint `placeholder:"N" xor:"span" help:"Show the last N weeks, up to 8, day by day."`
}

func (c *historyCommand) Validate() error {
	if c.Hours > 24 || c.Days > 60 || c.Weeks > 8 {
		return usage("the history has at most 24 --hours by the minute, and 60 --days or 8 --weeks by the hour")
	}
	return nil
}

// mostPeriods is how many rows a table has, unless the user asks for more days.
const mostPeriods = 48

// spans returns how far the history goes back, of what periods it's read, and how long those of the table are.
func (c *historyCommand) spans() (back, grain, length time.Duration) {
	const day = 24 * time.Hour
	switch {
	case c.Weeks > 0:
		return time.Duration(c.Weeks) * 7 * day, time.Hour, day
	case c.Days > 0:
		back, grain = time.Duration(c.Days)*day, time.Hour
	default:
		back, grain = time.Duration(max(c.Hours, 1))*time.Hour, time.Minute
		if c.Hours == 0 {
			back = 3 * time.Hour
		}
	}
	for _, length = range []time.Duration{time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, day} {
		if length >= grain && back/length <= mostPeriods {
			break
		}
	}
	return back, grain, length
}

// A historyRow is a period of the history.
type historyRow struct {
	Queue string
	inspect.Period
	Versions []string // of the service that were new
}

func (c *historyCommand) Run(ctx context.Context, con *console, f *fleet, q *worqr.Queue) error {
	back, grain, length := c.spans()
	now := time.Now()
	all, err := q.History(ctx, now.Add(-back).Truncate(length).Add(length), now, grain)
	if err != nil {
		return err
	}
	deploys, err := f.Deploys(ctx)
	if err != nil {
		return err
	}
	var rows []historyRow
	most, recorded := 1, false
	for _, p := range inspect.Merged(all, length) {
		row := historyRow{Queue: q.Name(), Period: p, Versions: []string{}}
		for _, d := range deploys {
			if !d.At.Before(p.At) && d.At.Before(p.At.Add(length)) {
				row.Versions = append(row.Versions, d.Version)
			}
		}
		if recorded = recorded || p.Recorded; recorded {
			rows, most = append(rows, row), max(most, p.MostWaiting)
		}
	}
	each := func(yield func(historyRow, error) bool) {
		for _, r := range rows {
			if !yield(r, nil) {
				return
			}
		}
	}
	_, err = printRows(con.out, c.form, "UTC ENQUEUED STARTED FINISHED FAILED RETRIED WAITED RAN BACKLOG", each, func(r historyRow) []string {
		return r.cells(length, most)
	})
	if err == nil && !recorded && !c.JSON {
		con.say("nothing is recorded: no peer served the queue, or it has Options.NoHistory")
	}
	return err
}

func (r historyRow) cells(length time.Duration, most int) []string {
	at := r.At.UTC().Format("01-02 15:04")
	if length == 24*time.Hour {
		at = r.At.UTC().Format("Mon 01-02")
	}
	last := words.Grouped(r.MostWaiting)
	if bar := strings.Repeat("▇", (20*r.MostWaiting+most-1)/most); bar != "" {
		last += " " + bar
	}
	for _, v := range r.Versions {
		last += "  ← " + brief(v, 40)
	}
	if !r.Recorded {
		return []string{at, "", "", "", "", "", "", "", last}
	}
	cells := []string{at}
	for _, n := range []int64{r.Enqueued, r.Started, r.Finished, r.Failed, r.Retried} {
		cells = append(cells, strconv.FormatInt(n, 10))
	}
	return append(cells, taken(max(r.Waited.Quantile(0.95), r.Oldest)), taken(r.Ran.Quantile(0.95)), last)
}

// taken formats an estimate of a duration; "-" if there's none.
func taken(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return age(d)
}
