package dash

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

// A checkup looks for damage and risks, in the background: it reads all keys of the fleet, so it
// isn't part of a snapshot.
type checkup struct {
	peer *worqr.Peer
	opts *worqr.CheckOptions

	mu     sync.Mutex // protects what follows
	going  bool
	begun  time.Time
	took   time.Duration
	ended  time.Time // zero before the first end
	report *worqr.CheckReport
	err    error
}

const (
	checkTimeout = 2 * time.Minute
	checkEvery   = 5 * time.Minute // while somebody looks
)

// mostChecked is how many tasks a fleet may have for a check that nobody has asked for.
const mostChecked = 100_000

// start begins a check unless one is going on, or the last one is newer than since.
func (c *checkup) start(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since > 0 && errors.Is(c.err, worqr.ErrDenied) {
		return // nobody has granted the permission since
	}
	if c.going || !c.ended.IsZero() && time.Since(c.ended) < max(since, min(20*c.took, time.Hour)) && since > 0 {
		return
	}
	c.going, c.begun = true, time.Now()
	go c.run()
}

func (c *checkup) run() {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	report, err := c.peer.Check(ctx, c.opts)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.going, c.took, c.ended, c.err = false, time.Since(c.begun), time.Now(), err
	if err == nil {
		c.report = report
	}
}

// findings are those of the last check.
func (c *checkup) findings() []worqr.Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.report == nil {
		return nil
	}
	return c.report.Findings
}

// A checkState is what the page of the server shows of the checks.
type checkState struct {
	Going  bool
	Begun  time.Time
	Ended  time.Time
	Took   time.Duration
	Report *worqr.CheckReport
	Err    string
}

func (c *checkup) state() checkState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := checkState{Going: c.going, Begun: c.begun, Ended: c.ended, Took: c.took, Report: c.report}
	if c.err != nil {
		s.Err = printable(c.err.Error())
	}
	return s
}
