package logs

import (
	"sync"
	"time"
)

// A Loss logs failed tasks that were dropped from a full failed queue: after a second, then at most
// once a minute, and the rest at the end. Each dropped task is counted in exactly one line.
type Loss struct {
	Log   *Log
	Queue string

	mu    sync.Mutex // protects the fields below
	said  time.Time
	tasks int // not logged yet
	kept  int
	timer *time.Timer // logs them; nil while there are none
}

const (
	lossFirst = time.Second // from the first loss to its line, which then counts a whole burst
	lossPause = time.Minute // between two lines
)

// Add counts tasks that were dropped from a failed queue that keeps kept tasks.
func (l *Loss) Add(tasks, kept int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks, l.kept = l.tasks+tasks, kept
	if l.timer == nil {
		l.timer = time.AfterFunc(max(time.Until(l.said.Add(lossPause)), lossFirst), l.Flush)
	}
}

// Flush logs what isn't logged yet.
func (l *Loss) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.tasks == 0 {
		return
	}
	l.Log.Error("worqr: the failed queue is full, and its oldest tasks were dropped for good; raise KeepFailed, or requeue or delete failed tasks in time",
		"queue", l.Queue, "dropped", l.tasks, "kept", l.kept)
	l.tasks, l.said = 0, time.Now()
}
