package logs

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// An Outage logs a repeating error when it begins, changes and ends, with a few lines a second at
// most. It doesn't log that Redis is down. The Log does that, once for all callers.
type Outage struct {
	mu    sync.Mutex
	last  string
	since time.Time // when the error began
	began time.Time // start of the current second
	lines int       // lines logged in it
	away  int       // consecutive failures because Redis didn't answer
	backs int       // the server's count at that time
}

const mostChanges = 5 // lines a second of one outage

// Note records the current error; nil means that the problem has ended.
func (o *Outage) Note(log *Log, what string, err error, attrs ...any) {
	is, away, answered, says := "", false, true, "worqr: Redis doesn't answer; retrying"
	if err != nil { // runs user code if the error is a Pool's
		is, away = Gist(err), log.Away != nil && log.Away(err)
		answered = log.Answered != nil && log.Answered(err)
		if away && log.Refused != nil && log.Refused(err) {
			says = "worqr: Redis refuses the login; check the user and the password; retrying"
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if away {
		log.server.gone(log, o, says, what, is, err)
		return
	}
	if o.away > 0 && answered { // an error of our own doesn't show that Redis answers
		o.away = 0
		log.server.back(log)
	}
	if is == o.last {
		return
	}
	if now := time.Now(); now.Sub(o.began) >= time.Second {
		o.began, o.lines = now, 0
	}
	if is == "" {
		log.Info("worqr: recovered", append(attrs, "from", what, "after", time.Since(o.since).Round(time.Millisecond))...)
		o.last = ""
		return
	}
	if o.lines >= mostChanges {
		return // logged later if it persists
	}
	if o.last == "" {
		o.since = time.Now()
	}
	o.lines++
	log.Warn("worqr: "+what, append(attrs, "err", err)...)
	o.last = is
}

// Called records the result of a call that isn't repeated: the caller gets its error, so it isn't
// logged. Two consecutive failures show that Redis doesn't answer, and a success shows that it does
// again.
func (l *Log) Called(err error) {
	if l.Lost == nil {
		return
	}
	if err == nil || l.Away == nil || !l.Away(err) {
		if (l.server.unanswered.Load() > 0 || l.server.lost.Load() > 0) && (err == nil || l.Answered != nil && l.Answered(err)) {
			l.server.unanswered.Store(0)
			l.server.back(l)
		}
		return
	}
	if l.server.unanswered.Add(1) > 1 {
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		l.server.loseLocked(l, err)
	}
}

// A server records whether Redis answers.
type server struct {
	unanswered atomic.Int64 // consecutive calls, as recorded by Called

	lost atomic.Int64 // when Lost was called, in ns; 0 while Redis answers

	mu    sync.Mutex
	away  bool      // whether that is logged
	since time.Time // the first failure
	noted time.Time // the last failure
	said  time.Time
	known map[string]time.Time // errors of this outage, and when each was last recorded
	backs int                  // how many outages have ended
}

const (
	forgotten = time.Minute      // without a failure: the next failure begins a new outage
	sayAgain  = 10 * time.Second // after the previous line, if the error has changed
	mostKnown = 20               // errors, to limit memory
)

// gone records that Redis doesn't answer. It doesn't log a single failure that ends immediately,
// nor an error that was recorded within the last minute: otherwise callers that fail in different
// ways would alternate. The caller holds o.mu.
func (s *server) gone(log *Log, o *Outage, says, what, is string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.backs != s.backs {
		o.away, o.backs = 0, s.backs
	}
	o.away++
	now := time.Now()
	if now.Sub(s.noted) >= forgotten {
		s.away, s.since = false, now
	}
	s.noted = now
	if !s.away {
		s.known = map[string]time.Time{}
	}
	last, known := s.known[is]
	known = known && now.Sub(last) < forgotten
	if known {
		s.known[is] = now
	}
	if !s.away && o.away < 2 || s.away && (known || now.Sub(s.said) < sayAgain) {
		return
	}
	if len(s.known) == mostKnown {
		clear(s.known)
	}
	s.known[is] = now
	s.loseLocked(log, err)
	s.away, s.said = true, now
	failed, _, _ := strings.Cut(what, ";") // the rest is a consequence that only applies while Redis answers
	log.Warn(says, log.named("noticed", failed, "err", err)...)
}

// loseLocked calls Lost if Redis has just stopped answering.
func (s *server) loseLocked(log *Log, err error) {
	if s.lost.Load() == 0 && log.Lost != nil {
		s.lost.Store(time.Now().UnixNano())
		log.Lost(err)
	}
}

// back records that Redis answers a caller again.
func (s *server) back(log *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		log.Info("worqr: Redis answers again", log.named("after", time.Since(s.since).Round(time.Millisecond))...)
	}
	if lost := s.lost.Swap(0); lost > 0 && log.Restored != nil {
		since := time.Unix(0, lost)
		if s.away && s.since.Before(since) {
			since = s.since
		}
		log.Restored(time.Since(since))
	}
	s.away, s.noted = false, time.Time{}
	s.backs++
}
