package dash_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
)

// If Options.Payload panics, only the payload is missing: in pages, searches, streams and actions. Its stack is logged
// once.
func TestPayloadPanics(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	fail(t, q, "bad", "no")
	peertest.Enqueue(t, q, "waits")
	var journal peertest.Journal
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond, Logger: journal.Logger(),
		Payload: func(_ string, payload []byte) string { return string(payload[30:31]) }})
	b.shows("failed?name=q", "(cannot be shown)")
	b.shows("failed?name=q&payload=shown", "1 of 1 failed task match")
	b.shows("queue?name=q", "(cannot be shown)")
	await(t, b.stream(t.Context(), "show=queue&name=q"), "tasks", "(cannot be shown)")
	b.act("verb", "requeue-matching", "name", "q", "payload", "shown", "back", "failed?name=q")
	is.Equal(peertest.Stats(t, q).Failed, 0)
	lines := journal.Lines("Options.Payload panicked")
	is.Equal(len(lines), 1)
	is.True(strings.Contains(lines[0], "formatter_test.go"))
}

// If User panics, the action isn't done: it couldn't be logged.
func TestUserPanics(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	b := browse(t, p, &dash.Options{AllowActions: true, User: func(*http.Request) string { panic(http.ErrAbortHandler) }})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+"act", strings.NewReader("verb=pause&name=q"))
	is.NoErr(err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err = b.http.Do(r) //nolint:bodyclose // there's no response
	is.True(err != nil)
	is.True(!peertest.Stats(t, q).Paused)
}

// A page whose function hangs doesn't keep the others from being updated, and isn't rendered twice.
func TestPayloadHangs(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("a"), "bad")
	peertest.Enqueue(t, p.Queue("b"), "good")
	held, entered := make(chan bool), make(chan bool, 10)
	defer close(held)
	b := browse(t, p, &dash.Options{Interval: 100 * time.Millisecond, Payload: func(queue string, payload []byte) string {
		if queue == "a" {
			entered <- true
			<-held
		}
		return string(payload)
	}})
	told := b.stream(t.Context(), "show=queue&name=b")
	await(t, told, "tasks", "good")
	b.stream(t.Context(), "show=queue&name=a")
	<-entered
	peertest.Enqueue(t, p.Queue("b"), "better")
	await(t, told, "tasks", "better")
	is.Equal(len(entered), 0)
}
