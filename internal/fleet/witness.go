package fleet

import "time"

// A witness is what a worker has observed of a server in its heartbeats. It decides whether the
// worker may evict others: their silence counts only while Redis answers all workers. The worker
// can't observe that, but it knows what would keep them silent:
//
//   - Redis was down, or its clock jumped. All leases expire together, and some peers come
//     back before others. So heartbeats must have been answered without a gap for a whole lease, three beats.
//   - Redis is slow. A peer that has to connect first needs several round trips. So a heartbeat
//     that takes longer than half the time between two counts as a gap.
//   - All connections were cut, and some peers sent a heartbeat again sooner than others. So the
//     connection must have answered for a third of a lease: a live peer tries four times in that time.
//
// If a connection is cut and a heartbeat is answered soon enough on the next one, that's no gap.
// Otherwise no worker could be evicted while connections keep being cut.
type witness struct {
	beat   time.Duration // between two heartbeats; a third of a lease
	steady time.Time     // since when there was no gap; zero before the first answer
	sent   time.Time     // when the last answered heartbeat was sent
	made   time.Time     // when the connection was made that answered it
	redis  int64         // Redis's time in that answer, in ms
}

// answered handles the answer to a heartbeat, on a connection that was made at the given time.
// lapsed reports that leases have expired for a reason that may apply to every worker.
func (w *witness) answered(sent, now, made time.Time, lapsed bool) {
	switch {
	case w.steady.IsZero(), lapsed, sent.Sub(w.sent) > 2*w.beat:
		w.steady = sent
	case now.Sub(sent) > w.beat/2:
		w.steady = now
	}
	if soon := now.Add(-2 * w.beat); !made.Equal(w.made) && w.steady.Before(soon) {
		w.steady = soon
	}
	w.sent, w.made = sent, made
}

// hasJumped reports whether a time of Redis is further ahead than the last one can explain. If
// Redis's clock has jumped, that is why leases have expired.
func (w *witness) hasJumped(redis int64, now time.Time) bool {
	return w.redis > 0 && redis > w.redis+(now.Sub(w.sent)+w.beat).Milliseconds()
}

// judges returns Redis's time until which a call that is sent now may evict others; 0 if it may
// not. made is when the connection was made; zero if there is none.
func (w *witness) judges(now, made time.Time) int64 {
	if w.steady.IsZero() || made.IsZero() || !made.Equal(w.made) || now.Sub(w.sent) > 2*w.beat || now.Before(w.ripe()) {
		return 0
	}
	return w.redis + w.beat.Milliseconds()
}

// ripe returns when the worker may evict others, if there's no gap until then.
func (w *witness) ripe() time.Time { return w.steady.Add(3 * w.beat) }
