package worqr

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/worqr/worqr/internal/redisconn"
)

// Check scans the fleet's keys and reports broken invariants, a service that doesn't do
// its work (tasks that run, wait, fail or are retried too long or too often), and risky
// server settings. It changes nothing. Run it at any time, from any peer, started or not.
//
// Some things look odd for a moment while workers start, die and leave. Check looks at
// these again a lease later, so give the context two leases at least, and more with many
// keys. It reads the keyspace in pages with SCAN and judges each page in a short script.
// Its time grows with the number of keys in the database, its memory with the tasks that
// run.
//
// OK of the report is about invariants only. For an alert, look at Findings with
// SeverityWarning too: tasks that nobody works on, server settings that endanger them, and
// what exceeds a limit that opts set. What exceeds a default limit is a notice. A service
// that checks itself does so once Run has begun: before, its queues are unserved.
//
// How long a task has run goes by the clock of the peer that started it. Check asks
// INFO and CONFIG GET about the server; where it may not, the report says so. Findings
// name keys, workers and runs of tasks, never payloads; keys of tasks appear as digests.
//
// It fails with ErrInvalid when an option makes no sense, and with ErrDenied when the
// Redis user lacks a permission: a worker's don't suffice, the doctor's do (docs/security.md).
func (p *Peer) Check(ctx context.Context, opts *CheckOptions) (*CheckReport, error) {
	r, err := p.checkUp(ctx, opts, false)
	return r, wrap("check", err)
}

// lacking says what to do about a denial: a worker's rule isn't enough for a checkup.
func lacking(err error) error {
	if !redisconn.Denied(err) {
		return err
	}
	what := "do this"
	if m := deniedCommand.FindStringSubmatch(err.Error()); m != nil {
		what = "run " + strings.ToUpper(m[1])
	}
	return fmt.Errorf("%w: the Redis user may not %s; give it the doctor's rule in docs/security.md: %w", ErrDenied, what, err)
}

var deniedCommand = regexp.MustCompile(`the '([a-z]+)[a-z|]*' command`)
