package logs

import (
	"sync"
	"time"
)

// An Outage logs an error that repeats when it begins, when it changes and when it is
// over. However fast it changes, it logs a few lines a second.
type Outage struct {
	mu    sync.Mutex // protects the fields below
	last  string
	since time.Time // it was not "" since then
	began time.Time // the second
	lines int       // logged in it
}

const mostChanges = 5 // lines a second of one outage

// Note logs what is the matter now; a nil error means nothing any more.
func (o *Outage) Note(log *Log, what string, err error, attrs ...any) {
	is := ""
	if err != nil {
		is = Gist(err) // runs user code where the error is that of a Pool
	}
	o.mu.Lock()
	defer o.mu.Unlock()
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
