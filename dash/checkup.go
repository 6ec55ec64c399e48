package dash

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A checkup looks for damage and risks, in the background: it reads all keys of the fleet, so it
// isn't part of a snapshot.
type checkup struct {
	peer *worqr.Peer
	opts *inspect.CheckOptions

	mu    sync.Mutex // protects the fields below
	now   checkState
	again bool      // check once more after the current check
	of    time.Time // when the reported check began
	err   error
}

// A checkState is what the server page shows of the checks.
type checkState struct {
	Going  bool
	Begun  time.Time
	Ended  time.Time // zero before the first end
	Took   time.Duration
	Report *inspect.CheckReport
	Err    string
}

// How long a check may take, and how often it runs while someone watches: more often while something is wrong,
// so that solved problems disappear.
const (
	checkTimeout = 2 * time.Minute
	checkEvery   = 5 * time.Minute
	checkSoon    = 20 * time.Second
)

// fewKeys are read quickly.
const fewKeys = 20_000

// mostChecked is the number of tasks up to which a fleet is checked automatically.
const mostChecked = 100_000

// follow starts a check if a snapshot shows that one is due. After an action, one is due
// immediately.
func (c *checkup) follow(s *snapshot, acted bool) {
	every := checkEvery
	findings, _ := c.findings()
	wrong := slices.ContainsFunc(findings, worth)
	switch {
	case s.At.IsZero() || s.err != nil:
		return
	case s.Total.tasks() > mostChecked && !wrong:
		return
	case acted:
		every = time.Nanosecond
	case wrong:
		every = checkSoon
	}
	c.start(every)
}

// start starts a check unless one is in progress, or the last one is newer than since. For a check on request,
// since is 0.
func (c *checkup) start(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if since > 0 && errors.Is(c.err, worqr.ErrDenied) {
		return // the permission is still missing
	}
	if c.now.Going {
		c.again = c.again || since < checkSoon
		return
	}
	rest := 20 * c.now.Took
	if c.now.Report != nil && c.now.Report.Keys < fewKeys {
		rest = 2 * c.now.Took // most of it was the pause before looking again at transient findings
	}
	if since > 0 && !c.now.Ended.IsZero() && time.Since(c.now.Ended) < max(since, min(rest, time.Hour)) {
		return
	}
	c.now.Going, c.now.Begun = true, time.Now()
	go c.run()
}

func (c *checkup) run() {
	for more := true; more; {
		ctx, end := context.WithTimeout(context.Background(), checkTimeout)
		begun := time.Now()
		report, err := c.peer.Check(ctx, c.opts)
		end()
		c.mu.Lock()
		c.now.Took, c.now.Ended, c.now.Err, c.err = time.Since(begun), time.Now(), "", err
		if err == nil {
			c.now.Report, c.of = report, begun
		} else {
			c.now.Err = printable(err.Error())
		}
		more = c.again && err == nil && c.now.Took < checkSoon
		c.now.Going, c.again, c.now.Begun = more, false, c.now.Ended
		c.mu.Unlock()
	}
}

// findings returns the findings of the last check, and when the check began.
func (c *checkup) findings() ([]inspect.Finding, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Report == nil {
		return nil, time.Time{}
	}
	return c.now.Report.Findings, c.of
}

func (c *checkup) state() checkState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}
