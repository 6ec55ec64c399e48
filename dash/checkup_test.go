package dash_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A finding is shown with its age, and disappears once it's solved: an open page needn't be reloaded, nor wait
// for minutes.
func TestSolvedFindings(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := peertest.OpenDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: time.Second})
	q := p.Queue("q")
	orphan := prefix + ":process:{q}:w.1.1.1"
	redistest.Do(t, conn, "LPUSH", orphan, "x")
	peertest.Enqueue(t, q, "a")
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	told := b.stream(t.Context(), "show=overview")
	const found = "Tasks are stuck"
	gone := func() {
		t.Helper()
		for changed := range told {
			if text, ok := changed["banners"]; ok && !strings.Contains(text, found) {
				return
			}
		}
		t.Error("the stream ended")
	}
	await(t, told, "banners", found)
	is.NoErr(q.Delete(t.Context())) // the next snapshot contradicts it
	gone()

	peertest.Enqueue(t, q, "a")
	b.act("verb", "check")
	await(t, told, "banners", found)
	redistest.Do(t, conn, "DEL", orphan)
	b.act("verb", "resume", "name", "q") // any action starts another check
	gone()
}

// Whoever requests checks again and again shares one with all others, and rests between two of them.
func TestChecksRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 2 * time.Second
		var n atomic.Int32
		start := dash.Checkup(func(context.Context) (*inspect.CheckReport, error) {
			n.Add(1)
			time.Sleep(takes)
			return &inspect.CheckReport{Keys: 1_000_000}, nil
		})
		for range 9_990 { // not 100 s, when one may begin
			start()
			time.Sleep(10 * time.Millisecond)
		}
		if n := n.Load(); n < 8 || n > 11 { // a fifth of 100 s, and the first
			t.Errorf("%d checks", n)
		}
		time.Sleep(time.Minute)
	})
}

// A request for a check reads nothing but the check.
func TestCheckOnRequest(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	h := dash.New(p, nil)
	b := browsing(t, h)
	for range 5 {
		is.Equal(b.post("act", "verb", "check").StatusCode, http.StatusSeeOther)
	}
	is.True(!dash.HasRead(h))
	b.shows("server", "Checked ")
	is.True(dash.HasRead(h))
}
