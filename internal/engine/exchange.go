package engine

import (
	"errors"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// An ending is the wish to end a process.
type ending struct {
	store.Outcome
	done   chan settled // gets one answer; nil if nobody waits for it
	ours   bool         // nobody waits: it is repeated until it is answered
	by     *run         // is told what became of it; nil if a task is given back that nobody took
	before store.Ending // by which it was to end before
	held   bool         // the task was held when this was first said
	task   *Attempt     // the round names its digest, which was not known before; mostly nil
}

// tellLocked answers the wish.
func (end *ending) tellLocked(d settled) {
	if end.by != nil {
		end.by.storedLocked(end, d)
		return
	}
	select {
	case end.done <- d:
	default: // the caller was let go
	}
}

type settled struct {
	what    store.Settled
	err     error
	unknown bool // it failed, and may have been carried out
}

// A mishap is why a round failed, and what that means. It's examined before a lock is
// taken: the error of a Pool is user code, whose methods may use the peer.
type mishap struct {
	err     error
	unknown bool // it may have been carried out
	final   bool // the worker has ended
}

func mishapOf(err error) mishap {
	return mishap{err, errors.Is(err, store.ErrUnknown), errors.Is(err, ErrEvicted) || errors.Is(err, ErrNotWorking)}
}

// A want is the wish for up to n tasks. If the budget of one round is too small for
// all, further rounds bring the rest. Session.mu protects all fields except got.
type want struct {
	n     int        // how many more
	have  []*Attempt // what earlier rounds have brought
	begun bool       // an answer came too late, so what it brought goes back
	got   chan taken // gets one answer
	gone  bool       // nobody waits any more
}

// loseLocked answers the wish when the worker has ended. Tasks started for it are lost, and
// others count a crash for each: the caller learns that this may have happened.
func (w *want) loseLocked(m mishap) {
	if (w.begun || len(w.have) > 0) && !m.unknown {
		m.err = &pair{m.err, store.ErrUnknown}
	}
	w.have = nil
	w.tellLocked(m.err)
}

// tellLocked answers the wish, unless it was answered: with an error only if it brought
// nothing.
func (w *want) tellLocked(err error) {
	t := taken{tasks: w.have}
	if len(w.have) == 0 {
		t.err = err
	}
	select {
	case w.got <- t:
	default:
	}
}

type taken struct {
	tasks []*Attempt
	err   error
}

// An exchange is a round with the callers that wait for its answer.
type exchange struct {
	store.Round
	outcomes []*ending
	wants    []*want
	slots    []slot // for tasks of the handler, beyond those for wants
	pending  store.Sent
	lane     int // the connection: 0, or another one beside other rounds
	sent     time.Time
	work     time.Duration // that Redis needs for it, about
	answered int64         // the last round that had been answered when this was put together
	recalls  int           // how often ready tasks had been recalled before
	repeated bool          // it may have been answered before, and the reply lost
	lost     int           // replies that were
	lent     bool          // others may use its slots and its room until the answer comes
	slotted  int           // how many slots these were
}

// complete waits for the digests of large payloads that the round needs: otherwise Redis would
// compute them, and do nothing else meanwhile.
func (e *exchange) complete() {
	for _, s := range e.outcomes {
		if s.task != nil {
			s.task.wait()
			s.Digest = s.task.sum() // the round has the same outcome
		}
	}
}
