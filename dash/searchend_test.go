package dash_test

import (
	"context"
	"flag"
	"html"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

var (
	scaleLarge = flag.Int("dash.large", 100, "failed tasks of TestSearchEnds, of 100 kB each")
	scaleWhole = flag.Bool("dash.whole", false, "TestSearchEnds watches a search until it ends, which takes minutes")
)

// A search with the most expensive expression ends soon after its page is gone, and takes little of the processor's
// time until then. It isn't parallel, since it measures what the process uses.
func TestSearchEnds(t *testing.T) {
	server := redistest.Start(t)
	p := peertest.OpenDoctor(t, server.URL(), worqr.Options{Prefix: redistest.Prefix(t)})
	q := peertest.Working(t, p, "q")
	for range *scaleLarge {
		fail(t, q, strings.Repeat("x", 100_000), "no")
	}
	h := dash.New(p, nil)
	b := browsing(t, h)
	page := "failed?name=q&payload=" + url.QueryEscape("((x?){18}x?){10}y")
	_, stream, _ := strings.Cut(b.get(page).text, `data-stream="stream?`) // with the id of the search
	stream, _, _ = strings.Cut(html.UnescapeString(stream), `"`)
	if *scaleWhole {
		begun, before, last := time.Now(), used(t), ""
		for changed := range b.stream(t.Context(), stream) {
			if last = changed["failed-totals"]; dash.Searching(h) == 0 {
				break
			}
		}
		t.Logf("a watched search ended after %v and %v of the processor's time: %s", time.Since(begun).Round(time.Second), (used(t) - before).Round(time.Second), last)
		return
	}
	ctx, leave := context.WithCancel(t.Context())
	await(t, b.stream(ctx, stream), "failed-totals", "match")
	before, gone := used(t), time.Now()
	leave()
	peertest.Eventually(t, "the search has ended", func() bool { return dash.Searching(h) == 0 })
	cost := used(t) - before
	t.Logf("the search ended %v after its page was gone, and took %v of the processor's time", time.Since(gone).Round(time.Millisecond), cost.Round(time.Millisecond))
	if cost > time.Second {
		t.Errorf("the search took %v after its page was gone", cost)
	}
}

// used returns the processor's time that this process has used.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	peertest.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
