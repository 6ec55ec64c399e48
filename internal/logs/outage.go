package logs

import (
	"strings"
	"sync"
	"time"
)

// An Outage logs an error that repeats when it begins, when it changes and when it is
// over. However fast it changes, it logs a few lines a second. That Redis is away is no error
// of its own: whoever notices, the Log says it once.
type Outage struct {
	mu    sync.Mutex
	last  string
	since time.Time // it was not "" since then
	began time.Time // the second
	lines int       // logged in it
	away  int       // how often in a row Redis was
	backs int       // of the server, when that was counted
}

const mostChanges = 5 // lines a second of one outage

// Note logs what is the matter now; a nil error means nothing any more.
func (o *Outage) Note(log *Log, what string, err error, attrs ...any) {
	is, away, answered := "", false, true
	if err != nil { // runs user code where the error is that of a Pool
		is, away = Gist(err), log.Away != nil && log.Away(err)
		answered = log.Answered != nil && log.Answered(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if away {
		log.server.gone(log, o, what, is, err)
		return
	}
	if o.away > 0 && answered { // an error of our own shows nothing of the kind
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
		log.Info("worqr: the problem is over", append(attrs, "from", what, "after", time.Since(o.since).Round(time.Millisecond))...)
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

// A server is what is known of Redis: whether it answers.
type server struct {
	mu    sync.Mutex
	away  bool
	since time.Time // the first failure
	noted time.Time // the last failure
	said  time.Time
	last  string
	backs int // how often it was back
}

const (
	forgotten = time.Minute      // without a failure: nobody asks any more, so the next one is another outage
	sayAgain  = 10 * time.Second // after the line before, where the error has changed
)

// gone notes that Redis does not answer. One failure that is mended at once is not logged.
// o.mu is held.
func (s *server) gone(log *Log, o *Outage, what, is string, err error) {
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
	if !s.away && o.away < 2 || s.away && (is == s.last || now.Sub(s.said) < sayAgain) {
		return
	}
	s.away, s.said, s.last = true, now, is
	failed, _, _ := strings.Cut(what, ";") // the rest is what follows from it while Redis answers
	log.Warn("worqr: Redis does not answer; retrying", log.named("noticed", failed, "err", err)...)
}

// back notes that Redis answers somebody again whom it has not answered.
func (s *server) back(log *Log) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		log.Info("worqr: Redis answers again", log.named("after", time.Since(s.since).Round(time.Millisecond))...)
	}
	s.away, s.noted = false, time.Time{}
	s.backs++
}
