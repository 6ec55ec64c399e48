package engine

import (
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/logs"
)

// A rollback logs that Redis has lost writes. After a failover, each queue shows several signs of a
// loss. All of them share one line.
type rollback struct {
	log *logs.Log
	// Signs are collected for pause, so that one line names all queues. A sign within span belongs
	// to the same loss: it's only logged for a queue that wasn't named.
	pause, span time.Duration

	mu     sync.Mutex      // protects the fields below
	since  time.Time       // the first sign of the last loss
	queues map[string]bool // that have shown a sign
	unsaid []string        // queues that haven't been logged yet
	sign   string          // the first sign of unsaid
	timer  *time.Timer     // logs unsaid; nil while there's nothing to log
}

const (
	longestPause = time.Second      // an important line doesn't wait longer, even if heartbeats are minutes apart
	shortestSpan = 10 * time.Second // a new master may refuse heartbeats at first
	mostLost     = 20               // queues that one line names
)

func newRollback(log *logs.Log, lease Lease) *rollback {
	return &rollback{log: log, pause: min(lease.Beat, longestPause), span: max(3*lease.Beat, shortestSpan)}
}

func (r *rollback) note(queue, sign string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.queues == nil || now.Sub(r.since) >= r.span {
		r.since, r.queues = now, map[string]bool{}
	}
	if r.queues[queue] {
		return
	}
	r.queues[queue] = true
	r.unsaid = append(r.unsaid, queue)
	if r.timer == nil {
		r.sign = sign
		r.timer = time.AfterFunc(r.pause, r.flush)
	}
}

// flush logs what isn't logged yet.
func (r *rollback) flush() {
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
	r.log.Error("worqr: Redis has lost writes; tasks may be lost", "queues", queues[:min(len(queues), mostLost)], "count", len(queues), "evidence", sign)
}
