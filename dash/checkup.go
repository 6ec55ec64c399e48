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

	mu     sync.Mutex // protects the fields below
	now    checkState
	wanted bool      // a check begins as soon as one may, even if none is due
	of     time.Time // when the reported check began
	err    error
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

// follow starts a check if a snapshot shows that one is due. After an action, one is due immediately.
func (c *checkup) follow(s *snapshot, acted bool) {
	if s.At.IsZero() || s.err != nil {
		return
	}
	findings, _ := c.findings()
	wrong := slices.ContainsFunc(findings, worth)
	every := checkEvery
	if wrong {
		every = checkSoon
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	due := (wrong || s.Total.tasks() <= mostChecked) && !errors.Is(c.err, worqr.ErrDenied) // the permission is still missing
	c.wanted = c.wanted || due && acted
	switch {
	case c.wanted:
		c.beginLocked(c.shortRestLocked())
	case due:
		c.beginLocked(max(every, min(c.restLocked(), time.Hour)))
	}
}

// request starts a check. Visitors of a read-only dashboard may request one at any time, so those share one, after a
// short rest: then a page that is open begins it.
func (c *checkup) request() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = true
	c.beginLocked(c.shortRestLocked())
}

// restLocked returns how long nothing is checked after the last check, unless it's requested.
func (c *checkup) restLocked() time.Duration {
	if c.now.Report != nil && c.now.Report.Keys < fewKeys {
		return 2 * c.now.Took // most of it was the pause before looking again at transient findings
	}
	return 20 * c.now.Took
}

func (c *checkup) shortRestLocked() time.Duration { return max(c.restLocked()/5, time.Second) }

// beginLocked starts a check unless one is in progress, or the last one has ended less than rest ago.
func (c *checkup) beginLocked(rest time.Duration) {
	if c.now.Going || !c.now.Ended.IsZero() && time.Since(c.now.Ended) < rest {
		return
	}
	c.now.Going, c.now.Begun, c.wanted = true, time.Now(), false
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
