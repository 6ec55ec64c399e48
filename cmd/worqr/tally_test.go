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

func TestSummarySaysWhatIsLost(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(summary{Enqueued: 3, Finished: 1, Lost: 2, Gaps: 1}.print(&out, style{}))
	is.Equal(figures(t, out.String())["lost"], 2)
	is.True(strings.Contains(out.String(), "missed"))
}
