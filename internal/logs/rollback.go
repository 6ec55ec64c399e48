package logs

import (
	"slices"
	"sync"
	"time"
)

// A Rollback logs that Redis has lost writes. After a failover, each queue shows several signs of a
// loss. All of them share one line.
type Rollback struct {
	log *Log
	// Signs are collected for pause, so that one line names all queues. A sign within span belongs
	// to the same loss: it's only logged for a queue that wasn't named. But a loss shows each sign
	// once on a queue: after that, the queue knows that Redis has less. So the same sign again shows
	// another loss.
	pause, span time.Duration

	mu     sync.Mutex          // protects the fields below
	since  time.Time           // the first sign of the last loss
	signs  map[string][]string // of the last loss, by queue
	unsaid []string            // queues that haven't been logged yet
	sign   string              // the first sign of unsaid
	timer  *time.Timer         // logs unsaid; nil while there's nothing to log
}

const (
	longestPause = time.Second      // an important line doesn't wait longer, even if heartbeats are minutes apart
	shortestSpan = 10 * time.Second // a new master may refuse heartbeats at first
	mostLost     = 20               // queues that one line names
)

// NewRollback returns a Rollback for a peer with a time between two heartbeats.
func NewRollback(log *Log, beat time.Duration) *Rollback {
	return &Rollback{log: log, pause: min(beat, longestPause), span: max(3*beat, shortestSpan)}
}

// Note records a sign that Redis has lost writes of a queue. It reports whether the queue showed none of this loss
// before.
func (r *Rollback) Note(queue, sign string) (isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.signs == nil || now.Sub(r.since) >= r.span || slices.Contains(r.signs[queue], sign) {
		r.since, r.signs = now, map[string][]string{}
	}
	r.signs[queue] = append(r.signs[queue], sign)
	if len(r.signs[queue]) > 1 {
		return false
	}
	r.unsaid = append(r.unsaid, queue)
	if r.timer == nil {
		r.sign = sign
		r.timer = time.AfterFunc(r.pause, r.Flush)
	}
	return true
}

// Flush logs what isn't logged yet.
func (r *Rollback) Flush() {
	r.mu.Lock()
	queues, sign := r.unsaid, r.sign
	r.unsaid = nil
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	r.mu.Unlock()
	if len(queues) == 0 {
		return
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	r.log.Error("worqr: Redis has lost writes; tasks may be lost", "queues", queues[:min(len(queues), mostLost)], "count", len(queues), "evidence", sign)
}
