package dash_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
)

// inOrder returns the tasks that may start now, and none that aren't due.
func TestOrder(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	b := browse(t, p, nil)
	peertest.Add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("not due yet"), At: time.Now().Add(time.Hour)})
	page := b.shows("queue?name=q", "No task is waiting.").text
	is.True(!strings.Contains(page, "not due yet"))
	peertest.Enqueue(t, q, "first", "second")
	peertest.Add(t, q, worqr.TaskSpec{Key: "due", Payload: []byte("third")})
	page = b.shows("queue?name=q", "first", "second", "third").text
	is.True(!strings.Contains(page, "not due yet"))
	b.shows("queue?name=q&tab=scheduled", "not due yet")
}

// Anybody can write a link with any page number. None makes the dashboard read more than it can
// show.
func TestPageNumbers(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	b := browse(t, p, nil)
	peertest.Enqueue(t, q, slices.Repeat([]string{"x"}, 1200)...)
	for _, number := range []string{"20", "1000000", "200000000000000000", "-200000000000000000", "9223372036854775807", "x"} {
		peertest.Eventually(t, "page "+number+" is limited", func() bool { // a busy machine reads less
			page := b.get("queue?name=q&page=" + number).text
			is.True(!strings.Contains(page, "of 1,200"))
			return strings.Contains(page, "of 1,000") || strings.Contains(page, "of 51")
		})
	}
}
