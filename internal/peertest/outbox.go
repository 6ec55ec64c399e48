package peertest

import (
	"context"

	"github.com/worqr/worqr/inspect"
)

// Outbox returns a source as an outbox has it. A nil report is that of one with two pending rows.
func Outbox(report func(context.Context) (inspect.SourceReport, error)) inspect.Source {
	if report == nil {
		report = func(context.Context) (inspect.SourceReport, error) { return Pending(), nil }
	}
	return inspect.Source{
		Name: "outbox", Title: "Outbox of <orders>", Report: report,
		Metrics: []inspect.Metric{
			{Name: "pending_rows", Help: "Rows that aren't in Redis yet.", PerQueue: true},
			{Name: "oldest_row_age_seconds", Help: "Age of the oldest pending row."}, {Name: "sent_rows_total", Help: "Rows sent to Redis."},
		},
	}
}

// Pending is the report of an outbox with two pending rows.
func Pending() inspect.SourceReport {
	return inspect.SourceReport{
		Findings: []inspect.Finding{{Severity: inspect.SeverityRisk, Queue: "emails", Text: "The oldest row is 90 s old. Start a relay."}},
		Samples: []inspect.Sample{
			{Metric: "pending_rows", Queue: "emails", Number: 2}, {Metric: "oldest_row_age_seconds", Number: 90}, {Metric: "sent_rows_total", Number: 7},
		},
		Rows: []inspect.Row{{Label: "Pending", Text: "2 rows, <b>oldest</b> 90 s"}},
	}
}
