package fleet

import "time"

// A witness is what a worker has observed of Redis in its beats. It decides whether the worker may
// evict other workers: their silence counts only while Redis answers all workers. The worker can't
// observe that, but it knows what would keep them silent:
//
//   - Redis was down, or its clock jumped. All leases expire together, and some peers come
//     back before others. So beats must have succeeded without a gap for a whole lease.
//   - Redis is slow. A peer that has to connect first needs several round trips. So a beat
//     that takes longer than half the time between two beats counts as a gap.
//   - All connections were cut, and some peers sent a beat again sooner than others. So the
//     connection must have answered for a third of a lease: a live peer tries four times in
//     that time (keep).
//
// If a connection is cut and a beat succeeds soon enough on the next one, that's no gap. Otherwise
// no worker could be evicted while connections keep being cut.
type witness struct {
	beat   time.Duration // between two beats
	steady time.Time     // start of the current run of successful beats; zero before the first
	whole  time.Time     // since when the connection has answered; zero: it was lost
	beaten time.Time     // when the last beat that was answered was sent
}

// asks reports whether a beat sent now may evict other workers. The connection was made at the
// given time; zero means that there is none.
func (w *witness) asks(sent, made time.Time) bool {
	if !w.steady.IsZero() && sent.Sub(w.beaten) > 2*w.beat {
		w.steady = sent
	}
	if made.IsZero() || made.After(w.whole) {
		w.whole = time.Time{}
	}
	return !w.steady.IsZero() && !w.whole.IsZero() && w.wait(sent) <= 0
}

// cut records that a reply was lost, and with it the connection.
func (w *witness) cut() { w.whole = time.Time{} }

// receive handles the answer to a beat. lapsed reports that leases have expired for a reason that
// may apply to every worker. It returns the time until the worker may evict other workers.
func (w *witness) receive(sent, now time.Time, lapsed bool) time.Duration {
	w.beaten = sent
	switch {
	case w.steady.IsZero(), lapsed:
		w.steady = sent
	case now.Sub(sent) > w.beat/2:
		w.steady = now
	}
	if w.whole.IsZero() {
		w.whole = now
	}
	return w.wait(now)
}

// wait returns how long it takes until the worker may evict other workers, if nothing happens.
func (w *witness) wait(now time.Time) time.Duration {
	return max(3*w.beat-now.Sub(w.steady), w.beat-now.Sub(w.whole))
}
