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
	check func(context.Context) (*inspect.CheckReport, error)

	mu    sync.Mutex // protects the fields below
	now   checkState
	again bool      // check once more after the current check
	due   bool      // a check begins once there was a rest
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
func (c *checkup) follow(s *snapshot, acted, wrong bool) {
	every := checkEvery
	findings, _ := c.findings()
	found := slices.ContainsFunc(findings, worth)
	switch {
	case s.At.IsZero() || s.err != nil:
		return
	case s.Total.tasks() > mostChecked && !found:
		return
	case acted:
		every = time.Nanosecond
	case wrong || found:
		every = checkSoon
	}
	c.start(every)
}

// start starts a check unless one is in progress, or the last one is newer than since. For a check on request,
// since is 0: visitors of a read-only dashboard may request one at any time, so those share one, after a rest.
func (c *checkup) start(since time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case since > 0 && errors.Is(c.err, worqr.ErrDenied): // the permission is still missing
	case c.now.Going:
		c.again = c.again || since < checkSoon
	case since == 0:
		c.laterLocked()
	case c.now.Ended.IsZero() || time.Since(c.now.Ended) >= max(since, min(c.restLocked(), time.Hour)):
		c.beginLocked()
	}
}

// restLocked returns how long nothing is checked after the last check, unless it's requested.
func (c *checkup) restLocked() time.Duration {
	if c.now.Report != nil && c.now.Report.Keys < fewKeys {
		return 2 * c.now.Took // most of it was the pause before looking again at transient findings
	}
	return 20 * c.now.Took
}

// laterLocked begins a check after a short rest.
func (c *checkup) laterLocked() {
	wait := time.Until(c.now.Ended.Add(max(c.restLocked()/5, time.Second)))
	switch {
	case c.due:
	case c.now.Ended.IsZero() || wait <= 0:
		c.beginLocked()
	default:
		c.due = true
		time.AfterFunc(wait, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.due = false; !c.now.Going {
				c.beginLocked()
			}
		})
	}
}

func (c *checkup) beginLocked() {
	c.now.Going, c.now.Begun, c.again = true, time.Now(), false
	go c.run()
}

func (c *checkup) run() {
	ctx, end := context.WithTimeout(context.Background(), checkTimeout)
	defer end()
	begun := time.Now()
	report, err := c.check(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now.Took, c.now.Ended, c.now.Err, c.err = time.Since(begun), time.Now(), "", err
	if err == nil {
		c.now.Report, c.of = report, begun
	} else {
		c.now.Err = printable(err.Error())
	}
	c.now.Going = false
	if c.again && err == nil && c.now.Took < checkSoon {
		c.laterLocked()
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
