package dash

import (
	"context"
	"net/http"
	"time"

	"github.com/worqr/worqr/inspect"
)

func init() {
	lingering = 200 * time.Millisecond // otherwise each test binary would take longer to end
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
	return c.request
}
