package logs

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Limiter lets a limited number of lines through in each period, and counts the rest. At the end of
// each period in which it suppressed lines, it logs their number.
type Limiter struct {
	Say  func(msg string, attrs ...any) // logs the summary
	What string                         // its message
	Each int                            // lines a period per queue
	All  int                            // lines a period in total; 0 is no limit

	Period time.Duration // 0 is a second

	mu    sync.Mutex // protects the fields below
	began time.Time  // start of the current period
	lines int        // lines let through in it
	of    map[string]int
	left  map[string]int // lines suppressed, by queue
	timer *time.Timer    // nil until lines are suppressed
}

// Allow reports whether a line of the queue may be logged.
func (l *Limiter) Allow(queue string) bool { return l.AllowMany(queue, 1) }

// AllowMany is Allow for a line about several things: if it's suppressed, all of them are counted.
func (l *Limiter) AllowMany(queue string, several int) bool {
	if l.All == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, period := time.Now(), cmp.Or(l.Period, time.Second)
	if now.Sub(l.began) >= period {
		l.summarizeLocked()
		l.began, l.lines, l.of = now, 0, map[string]int{}
	}
	if l.lines < l.All && l.of[queue] < l.Each {
		l.lines++
		l.of[queue]++
		return true
	}
	if l.left == nil {
		l.left = map[string]int{}
		rest := period - now.Sub(l.began)
		if l.timer == nil {
			l.timer = time.AfterFunc(rest, l.Flush)
		} else {
			l.timer.Reset(rest)
		}
	}
	l.left[queue] += several
	return false
}

// Flush logs how many lines were suppressed and not yet reported.
func (l *Limiter) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.summarizeLocked()
}

// mostNamed is how many queues a summary names: those with the most suppressed lines.
const mostNamed = 10

// summarizeLocked logs how many lines were suppressed.
func (l *Limiter) summarizeLocked() {
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
	l.Say(l.What, "count", total, "within", time.Since(l.began).Round(time.Millisecond), slog.Group("queues", named...))
	l.left = nil
	l.timer.Stop()
}
