package dash

import (
	"context"
	"net/http"
	"time"

	"github.com/worqr/worqr/inspect"
)

func init() {
	lingering = 200 * time.Millisecond // otherwise each test binary would take longer to end
	hookPatience = 3 * time.Second     // otherwise tests with blocking hooks would be slow
	partPatience = 3 * time.Second
	unwatched = 3 * time.Second
}

// Searching returns how many searches are running or paused.
func Searching(h http.Handler) (n int) {
	s := h.(*dashboard).finds
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		o.mu.Lock()
		if !o.over {
			n++
		}
		o.mu.Unlock()
	}
	return n
}

// Patient makes a dashboard wait for its functions.
func Patient(h http.Handler) http.Handler {
	h.(*dashboard).hooks.partPatience = time.Hour
	return h
}

// HasRead reports whether a dashboard has begun to read the queues.
func HasRead(h http.Handler) bool {
	b := h.(*dashboard).hub
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.tried.IsZero()
}

// Checkup returns what requests a check.
func Checkup(check func(context.Context) (*inspect.CheckReport, error)) (request func()) {
	c := &checkup{check: check}
	return func() { c.start(0) }
}
