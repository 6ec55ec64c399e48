package simulation

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"
)

// What was held up arrives before what is on its way when it's released.
func TestReleaseKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{stir: make(chan struct{}, 1)}
		l := &link{w: w}
		var got []string
		send := func(what string) { l.send(&l.up, func() { got = append(got, what) }) }
		step := func() {
			e := w.events[0]
			w.events = slices.Delete(w.events, 0, 1)
			time.Sleep(time.Until(e.at))
			e.do()
		}
		l.up.held, l.up.slow = true, 10*time.Millisecond
		send("first")
		step()
		send("second")
		l.release(&l.up)
		for len(w.events) > 0 {
			step()
		}
		is.New(t).Equal(got, []string{"first", "second"})
	})
}
