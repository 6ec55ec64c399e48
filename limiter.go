package worqr

import (
	"cmp"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"
)

// A limiter lets a bounded number of lines a second through, and counts the rest. At
// the end of each second in which it left lines out, it logs how many.
type limiter struct {
	say  func(msg string, attrs ...any) // logs the summary
	what string                         // its message
	each int                            // lines a second of one queue
	all  int                            // lines a second; 0 is no bound

	mu    sync.Mutex // protects the fields below
	began time.Time  // the second
	lines int        // let through in it
	of    map[string]int
	left  map[string]int // left out, by queue
	timer *time.Timer    // nil until something was left out
}

// allow reports whether a line of the queue may be logged.
func (l *limiter) allow(queue string) bool {
	if l.all == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.began) >= time.Second {
		l.summarize()
		l.began, l.lines, l.of = now, 0, map[string]int{}
	}
	if l.lines < l.all && l.of[queue] < l.each {
		l.lines++
		l.of[queue]++
		return true
	}
	if l.left == nil {
		l.left = map[string]int{}
		rest := time.Second - now.Sub(l.began)
		if l.timer == nil {
			l.timer = time.AfterFunc(rest, l.flush)
		} else {
			l.timer.Reset(rest)
		}
	}
	l.left[queue]++
	return false
}

// flush logs what was left out so far.
func (l *limiter) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summarize()
}

// mostNamed is how many queues a summary names: those of which most was left out.
const mostNamed = 10

// summarize logs what was left out. l.mu is held.
func (l *limiter) summarize() {
	if l.left == nil {
		return
	}
	total := 0
	for _, n := range l.left {
		total += n
	}
	names := slices.SortedFunc(maps.Keys(l.left), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.left[b], l.left[a]), cmp.Compare(a, b))
	})
	var named []any
	for _, name := range names[:min(len(names), mostNamed)] {
		named = append(named, name, l.left[name])
	}
	l.say(l.what, "count", total, "within", time.Since(l.began).Round(time.Millisecond), slog.Group("queues", named...))
	l.left = nil
	l.timer.Stop()
}

// An outage logs an error that repeats when it begins, when it changes and when it is
// over. However fast it changes, it logs a few lines a second.
type outage struct {
	mu    sync.Mutex // protects the fields below
	last  string
	since time.Time // it was not "" since then
	began time.Time // the second
	lines int       // logged in it
}

const mostChanges = 5 // lines a second of one outage

func (o *outage) about(log *logger, what string, err error, attrs ...any) {
	is := ""
	if err != nil {
		is = gist(err) // runs user code where the error is that of a Pool
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

// gist is the part of an error's text that stays the same when the error repeats: not
// its ports.
func gist(err error) string { return digits.ReplaceAllString(message(err), "") }

var digits = regexp.MustCompile(`[0-9]+`)
