package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

var now = time.Now()

func TestTally(t *testing.T) {
	is := is.New(t)
	c := newTally()
	for id := range 6 {
		c.enqueued(id)
	}
	is.True(!c.started(0, 1, 0, now).orphan)
	c.finished(0)
	c.canceled(1)
	c.left(2, true)

	is.True(!c.started(3, 1, 0, now).orphan) // held by a killed peer, started again, finished
	c.orphaned(3)
	is.True(c.started(3, 2, 0, now).orphan)
	c.finished(3)
	c.finished(3) // a task is counted once

	is.True(!c.started(4, 1, 0, now).orphan) // still held by a killed peer
	c.orphaned(4)
	c.left(4, false)

	c.started(7, 1, 0, now) // not recorded as accepted
	c.started(7, 2, 0, now)

	c.enqueued(8) // back in the queue, and not started again
	c.started(8, 1, 0, now)
	c.orphaned(8)
	c.left(8, true)
	is.Equal(c.sum(), summary{Enqueued: 7, Finished: 2, Canceled: 1, Left: 3, Lost: 1, Returned: 2, Twice: 1, Other: 1})
}

func TestTallyOfTheSecondLane(t *testing.T) {
	is := is.New(t)
	c := newTally()
	for id := range 6 {
		c.enqueued(id)
	}
	c.started(0, 1, 0, now) // retried, twice
	c.tried(0, now)
	is.Equal(c.started(0, 2, 1, now).tried, now)
	c.started(0, 2, 2, now)
	is.Equal(c.finished(0).retries, 2)

	c.started(1, 1, 0, now) // retried, failed, requeued, retried
	c.started(1, 1, 1, now)
	c.failed(1)
	c.fixed(1)
	c.started(1, 2, 0, now)
	c.started(1, 2, 1, now)
	is.True(c.finished(1).fixed)

	c.started(2, 1, 0, now) // stays in the failed queue
	c.stuck(2)

	c.scheduled(3, now) // on time; then its peer is killed
	c.started(3, 1, 0, now.Add(20*time.Millisecond))
	c.orphaned(3)
	c.started(3, 2, 0, now.Add(3*time.Second))
	c.finished(3)

	c.scheduled(4, now) // too early
	c.started(4, 1, 0, now.Add(-time.Millisecond))
	c.finished(4)

	c.scheduled(5, now) // waits for its time
	c.left(5, true)

	c.enqueued(6) // too late
	c.scheduled(6, now)
	c.started(6, 1, 0, now.Add(2*time.Second))
	c.finished(6)
	is.Equal(c.sum(), summary{
		Enqueued: 7, Finished: 5, Left: 1, Stuck: 1, Returned: 1, Twice: 1,
		Retried: 4, Failed: 2, Fixed: 1, Scheduled: 4, OnTime: 1, Late: seconds(2 * time.Second),
	})
}

func TestSummarySaysWhatIsLost(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(summary{Enqueued: 3, Finished: 1, Lost: 2, Gaps: 1}.print(&out, style{}))
	is.Equal(figures(t, out.String())["lost"], 2)
	is.True(strings.Contains(out.String(), "missed"))
}
