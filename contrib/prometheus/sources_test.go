package worqrprom

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
)

// A scrape has what sources report. One that hangs is missing, and says so; the rest is there.
func TestSources(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	release := make(chan struct{})
	defer close(release)
	hangs := peertest.Outbox(func(context.Context) (inspect.SourceReport, error) { <-release; return peertest.Pending(), nil })
	hangs.Name = "hangs"
	m := New(nil)
	m.Watch(peertest.Open(t, worqr.Options{Trace: m.Trace(), Sources: []inspect.Source{peertest.Outbox(nil), hangs}}))
	got := gathered(t, registered(t, m))
	is.Equal(got["worqr_queues_readable"], 1.)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return !strings.HasPrefix(name, "worqr_source_") })
	is.Equal(got, map[string]float64{
		`worqr_source_outbox_pending_rows{queue="emails"}`: 2, "worqr_source_outbox_oldest_row_age_seconds": 90, "worqr_source_outbox_sent_rows_total": 7,
		`worqr_source_readable{source="outbox"}`: 1, `worqr_source_readable{source="hangs"}`: 0,
	})
}
