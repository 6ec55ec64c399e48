package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/worqr/worqr/inspect"
)

const (
	reportEvery = 5 * time.Second
	mostCounted = 10_000 // rows at the front
	waitsLong   = time.Minute
)

// A census counts rows: those that wait, and those at the front that are set aside, or of a newer version.
type census struct {
	at                    time.Time
	waiting, aside, newer int
	oldest                time.Duration // age of the oldest that waits
}

// Source reports the waiting rows, and those set aside, for worqr.Options.Sources. It reads the database at most every five
// seconds.
func (ob *Outbox) Source() inspect.Source {
	return inspect.Source{
		Name: "outbox", Title: "Outbox", Report: ob.reported,
		Metrics: []inspect.Metric{
			{Name: "waiting_rows", Help: "Rows to send, counted up to 10,000. All processes export the same number."},
			{Name: "oldest_row_age_seconds", Help: "Age of the row that has waited longest, by the database's clock."},
			{Name: "aside_rows", Help: "Rows that were set aside, since Redis refused their tasks for good, counted among the first 10,000 rows."},
			{Name: "sent_rows_total", Help: "Rows that this process sent."},
		},
	}
}

func (ob *Outbox) reported(ctx context.Context) (inspect.SourceReport, error) {
	c, err := ob.count(ctx)
	if err != nil {
		return inspect.SourceReport{}, fmt.Errorf("the database doesn't answer, so tasks can't be added: %w", err)
	}
	ob.mu.Lock()
	trouble := cmp.Or(ob.trouble[:]...)
	if time.Since(ob.noticed) > waitsLong { // since then, another process has relayed, or none
		trouble = nil
	}
	ob.mu.Unlock()
	return inspect.SourceReport{
		Findings: c.findings(trouble),
		Samples: []inspect.Sample{
			{Metric: "waiting_rows", Number: float64(c.waiting)}, {Metric: "oldest_row_age_seconds", Number: c.oldest.Seconds()},
			{Metric: "aside_rows", Number: float64(c.aside)}, {Metric: "sent_rows_total", Number: float64(ob.sent.Load())},
		},
		Rows: []inspect.Row{
			{Label: "Waiting", Text: some(c.waiting)}, {Label: "Oldest", Text: c.oldest.Round(time.Second).String()},
			{Label: "Set aside", Text: some(c.aside)}, {Label: "Sent by this process", Text: some(int(ob.sent.Load()))},
		},
	}, nil
}

func (ob *Outbox) count(ctx context.Context) (census, error) {
	ob.counting.Lock() // so that there's one query at a time
	defer ob.counting.Unlock()
	if time.Since(ob.counted.at) < reportEvery {
		return ob.counted, nil
	}
	c := census{at: time.Now()}
	err := ob.query(ctx, func(rows *sql.Rows) error {
		var state, n int
		var age float64
		if err := rows.Scan(&state, &n, &age); err != nil {
			return err
		}
		switch state {
		case 0:
			c.waiting, c.oldest = n, max(0, time.Duration(age*float64(time.Second)))
		case 1:
			c.newer = n
		case 2:
			c.aside = n
		}
		return nil
	}, `SELECT 0, count(*), coalesce(max(age), 0) FROM (
			SELECT `+ob.age+` AS age FROM worqr_outbox WHERE reason IS NULL AND format <= ? ORDER BY id LIMIT ?) AS waiting
		UNION ALL SELECT state, count(*), 0 FROM (
			SELECT CASE WHEN reason IS NOT NULL THEN 2 WHEN format > ? THEN 1 ELSE 3 END AS state FROM worqr_outbox ORDER BY id LIMIT ?) AS front
		GROUP BY state`, format, mostCounted, format, mostCounted)
	if err == nil {
		ob.counted = c
	}
	return c, err
}

// findings returns what is wrong. Trouble is why this process's relay failed last.
func (c census) findings(trouble error) (all []inspect.Finding) {
	add := func(s inspect.Severity, n int, title, text string, args ...any) {
		all = append(all, inspect.Finding{Severity: s, Count: n, Title: title, Text: fmt.Sprintf(text, args...)})
	}
	if c.oldest > waitsLong {
		why := "Start a peer that relays, and see the logs of those that do."
		if trouble != nil {
			why = fmt.Sprintf("The relay of this process says: %v.", trouble)
		}
		add(inspect.SeverityStopped, c.waiting, "Rows wait", "%s waiting in the outbox, the oldest for %v. %s", are(c.waiting), c.oldest.Round(time.Second), why)
	}
	if c.aside > 0 {
		add(inspect.SeverityStuck, c.aside, "Rows set aside", "%s set aside: Redis refused their tasks for good. List them with Aside; then retry or delete them.", are(c.aside))
	}
	if c.newer > 0 {
		add(inspect.SeverityRisk, c.newer, "Rows of a newer version", "%s in a format that this process doesn't know, and leaves. Finish the deploy.", are(c.newer))
	}
	return all
}

// some writes a number of rows.
func some(n int) string {
	switch n {
	case 1:
		return "1 row"
	case mostCounted:
		return "10,000 rows or more"
	}
	return fmt.Sprintf("%d rows", n)
}

func are(n int) string {
	if n == 1 {
		return "1 row is"
	}
	return some(n) + " are"
}
