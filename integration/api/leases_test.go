package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Two peers of a queue that have different leases: whoever joins later says so, once, and
// so does Check.
func TestDifferentLeases(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	start := func(name string, lease time.Duration, queues ...string) *logbook {
		l := &logbook{}
		p := open(t, worqr.Options{Prefix: prefix, Name: name, Lease: lease, Logger: l.logger()})
		for _, q := range queues {
			p.Queue(q).Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		}
		run(t, p)
		for _, q := range queues {
			eventually(t, name+" has joined", func() bool {
				s, err := p.Queue(q).Stats(t.Context())
				return err == nil && s.Workers > 0
			})
		}
		return l
	}
	start("short", 900*time.Millisecond, "common", "own")
	start("alike", 900*time.Millisecond, "own")
	doctor := openDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	found := func() (queues []string) {
		report, err := doctor.Check(t.Context(), nil)
		is.NoErr(err)
		for _, f := range report.Findings {
			if f.Kind == "leases" {
				queues = append(queues, f.Queue)
			}
		}
		return queues
	}
	is.Equal(len(found()), 0)
	long := start("long", 1500*time.Millisecond, "common")
	eventually(t, "it says so", func() bool { return len(long.about("different leases")) > 0 })
	eventually(t, "Check says so", func() bool { return len(found()) > 0 })
	is.Equal(found(), []string{"common"})
	lines := long.about("different leases")
	is.Equal(len(lines), 1)
	for _, want := range []string{"queue=common", "lease=1.5s", "other=900ms", "name=short"} {
		is.True(strings.Contains(lines[0], want))
	}
}
