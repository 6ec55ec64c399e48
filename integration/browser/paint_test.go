package browser

import (
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/dash"
)

// The promise is 100 ms on an idle machine. The tests' machine runs other tests, too, and may be
// ten times as slow; only a page that waits for something takes longer than this.
const paints = time.Second

// A page that was visited before paints soon after a click.
func TestPaint(t *testing.T) {
	f := stage(t)
	b := open(t, f.peer, dash.Options{AllowActions: true})
	for _, page := range b.pages() {
		var all []time.Duration
		for range 5 {
			b.visit(page)
			const first = `(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0)`
			b.until(page+" is painted", first+" > 0")
			all = append(all, time.Duration(ask[float64](b, first)*float64(time.Millisecond)))
		}
		slices.Sort(all)
		median := all[len(all)/2]
		t.Logf("%-45q painted within %v, at best %v", page, median.Round(time.Millisecond), all[0].Round(time.Millisecond))
		if median > paints {
			t.Errorf("%q is painted after %v", page, median)
		}
	}
}
