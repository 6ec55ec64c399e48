package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestTally(t *testing.T) {
	is := is.New(t)
	c := newTally()
	for id := range 6 {
		c.enqueued(id)
	}
	is.True(!c.started(0, 1))
	c.finished(0)
	c.canceled(1)
	c.left(2, true)

	is.True(!c.started(3, 1)) // held by a killed peer, started again, finished
	c.orphaned(3)
	is.True(c.started(3, 2))
	c.finished(3)
	c.finished(3) // a task is counted once

	is.True(!c.started(4, 1)) // still in the hands of a killed peer
	c.orphaned(4)
	c.left(4, false)

	c.started(7, 1) // not known to be accepted
	c.started(7, 2)
	is.Equal(c.sum(), summary{Enqueued: 6, Finished: 2, Canceled: 1, Left: 2, Lost: 1, Returned: 1, Twice: 1, Other: 1})
}

func TestTallyCountsReturnedThatWait(t *testing.T) {
	is := is.New(t)
	c := newTally()
	c.enqueued(1)
	c.started(1, 1)
	c.orphaned(1)
	c.left(1, true)
	is.Equal(c.sum(), summary{Enqueued: 1, Left: 1, Returned: 1})
}

func TestSummarySaysWhatIsLost(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(summary{Enqueued: 3, Finished: 1, Lost: 2, Gaps: 1}.print(&out, style{}))
	is.Equal(figures(t, out.String())["lost"], 2)
	is.True(strings.Contains(out.String(), "missed"))
}
