package dash_test

import (
	"strings"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// The server page distinguishes a process that serves queues from one that only shows them.
func TestServer(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	b := browse(t, p, nil)
	page := b.shows("server", "It serves no queue; it only shows the fleet.", "answers").text
	is.True(!strings.Contains(page, p.WorkerID()))
	is.True(!strings.Contains(page, "StartWorker"))
	is.True(!strings.Contains(page, "in 0 ms"))
	peertest.Working(t, p, "q")
	b.shows("server", p.WorkerID(), "Last heartbeat", "it refuses writes", "no append-only file", "<dt>Clients</dt>")
}
