package inspect

import "context"

// A Source reports on something that is built on worqr, such as an outbox. Peers take some in
// worqr.Options.Sources: Peer.Check then includes its findings, the exporters in contrib its metrics, and the
// dashboard a section. All show what it reports to people, so that must not be secret.
type Source struct {
	// Name is the kind of its findings, and part of the names of its metrics: 1 to 40 characters of a-z and 0-9, first
	// a letter. It isn't one of worqr.FindingKinds.
	Name    string
	Title   string   // of its section, and of its findings that have none; "" is Name
	Metrics []Metric // that its reports may have; 100 at most
	// Report is called with each look at the dashboard, so up to once a second, and with each scrape and each Check:
	// cache what is expensive. Each peer makes one call at a time, whose result all callers get. If Report fails, panics,
	// or takes longer than two seconds, when ctx ends, they show that instead.
	Report func(ctx context.Context) (SourceReport, error)
}

// A Metric is a number that a Source reports. For Prometheus, pending_rows of the source outbox is
// worqr_source_outbox_pending_rows, and for OpenTelemetry worqr.source.outbox.pending_rows.
type Metric struct {
	Name     string // 1 to 60 characters of a-z, 0-9 and _, first a letter; if it ends in _total, it's a counter, otherwise a gauge
	Help     string
	PerQueue bool // it has a number for each queue, with the queue as a label
}

// A SourceReport is the current state of a Source. Whoever gets it must not change it.
type SourceReport struct {
	Findings []Finding // 100 at most; Kind and Repaired are ignored
	Samples  []Sample  // 1,000 at most
	Rows     []Row     // of the section; 100 at most
}

// A Sample is the number of one Metric.
type Sample struct {
	Metric string // its Name
	Queue  string // if it's PerQueue
	Number float64
}

// A Row is a line of a section.
type Row struct{ Label, Text string }
