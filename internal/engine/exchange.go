package engine

import (
	"errors"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// An ending is a request to end a process.
type ending struct {
	store.Outcome
	done   chan settled // gets one answer; nil if nobody waits for it
	ours   bool         // nobody waits: it's repeated until it's answered
	by     *run         // receives the answer; nil if an unbegun task goes back
	before store.Ending // the verb tried before
	held   bool         // the task was held when this was first sent
}

func (end *ending) tellLocked(d settled) {
	if end.by != nil {
		end.by.storedLocked(end, d)
		return
	}
	select {
	case end.done <- d:
	default: // the caller has stopped waiting
	}
}

type settled struct {
	what    store.Settled
	err     error
	unknown bool // it failed, but Redis may have carried it out
}

// A mishap is why a round failed, and what that means. It is examined before a lock is taken: a
// Pool's error is user code, whose methods may use the peer.
type mishap struct {
	err     error
	unknown bool // Redis may have carried it out
	final   bool // the worker has ended
}

func mishapOf(err error) mishap {
	return mishap{err, errors.Is(err, store.ErrUnknown), errors.Is(err, ErrEvicted) || errors.Is(err, ErrNotWorking)}
}

// A want is a request for up to n tasks. If a round can't bring all, further rounds bring the rest.
// Session.mu protects all fields except got.
type want struct {
	n     int        // how many are missing
	have  []*Attempt // what earlier rounds have brought
	begun bool       // an answer came too late, so its tasks go back
	got   chan taken // gets one answer
	gone  bool       // nobody waits for it anymore
}

// loseLocked answers the request when the worker has ended. The tasks started for it are lost, and
// other workers count a crash for each; so the error matches store.ErrUnknown.
func (w *want) loseLocked(m mishap) {
	if (w.begun || len(w.have) > 0) && !m.unknown {
		m.err = &pair{m.err, store.ErrUnknown}
	}
	w.have = nil
	w.tellLocked(m.err)
}

// tellLocked answers the request unless it was answered. The caller gets err only if there are no
// tasks.
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
	slots    []slot // for the handler's tasks, not for those of wants
	pending  store.Sent
	lane     int // the connection: 0, or another one next to other rounds
	sent     time.Time
	weight   int   // of the outcomes
	answered int64 // the last answered round when this one was made
	mark     Mark  // from when this one was made
	recalls  int   // how many times ready tasks had been recalled by then
	repeated bool  // Redis may have answered it before, and the reply was lost
	lent     bool  // other rounds may use its slots and its room until the answer comes
	slotted  int   // the number of slots lent
}

// full reports whether an answer brought all that its round asked for, or as much as a round may bring.
func (e *exchange) full(a *store.Answer) bool {
	return len(a.Started) == len(e.Start) || len(a.Started) > 0 && a.More
}
