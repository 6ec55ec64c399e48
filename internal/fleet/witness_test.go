package fleet

import (
	"testing"
	"time"
)

// A worker may evict others once heartbeats have been answered for a lease without a gap, on a connection
// that has answered for a third of a lease.
func TestWitness(t *testing.T) {
	t.Parallel()
	const beat = time.Second
	for name, c := range map[string]struct {
		happens func(v *view)
		waits   time.Duration // from then on, until it may evict others
	}{
		"it has just begun":                    {func(*view) {}, 3 * beat},
		"nothing happens":                      {func(v *view) { v.beats(3) }, 0},
		"a lease has lapsed":                   {func(v *view) { v.beats(5); v.send(0, true) }, 3 * beat},
		"Redis was down for two heartbeats":    {func(v *view) { v.beats(5); v.pass(2*beat + 1); v.send(0, false) }, 3 * beat},
		"an answer took half a heartbeat":      {func(v *view) { v.beats(5); v.send(beat/2, false) }, 0},
		"an answer took longer":                {func(v *view) { v.beats(5); v.send(beat/2+1, false) }, 3 * beat},
		"the connection was cut":               {func(v *view) { v.beats(5); v.cut(); v.send(0, false) }, beat},
		"it was cut every two heartbeats":      {func(v *view) { v.beats(1); v.cut(); v.beats(2); v.cut(); v.beats(2) }, 0},
		"it was cut while Redis was down":      {func(v *view) { v.beats(5); v.cut(); v.pass(2*beat + 1); v.send(0, false) }, 3 * beat},
		"it was cut, and nothing was sent yet": {func(v *view) { v.beats(5); v.cut() }, beat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &view{witness: witness{beat: beat}, now: time.Unix(1e9, 0)}
			v.connection = v.now
			v.send(0, false)
			c.happens(v)
			for waited := time.Duration(0); ; waited += beat / 4 { // it sends heartbeats all the time
				if judges := v.send(0, false); judges != (waited >= c.waits) {
					t.Fatalf("may judge: %t, %v later", judges, waited)
				} else if judges {
					return
				}
				v.pass(beat / 4)
			}
		})
	}
}

// A view is a witness that sends heartbeats.
type view struct {
	witness
	now, connection time.Time
}

func (v *view) pass(d time.Duration) { v.now = v.now.Add(d) }

// send sends a heartbeat that takes a given time. It reports whether it may evict others.
func (v *view) send(takes time.Duration, lapsed bool) (judges bool) {
	sent := v.now
	judges = v.judges(sent, v.connection) != 0
	if v.connection.IsZero() {
		v.connection = v.now
	}
	v.pass(takes)
	v.redis = v.now.UnixMilli()
	v.answered(sent, v.now, v.connection, lapsed)
	return judges
}

func (v *view) beats(n int) {
	for range n {
		v.pass(v.beat)
		v.send(0, false)
	}
}

// cut cuts the connection.
func (v *view) cut() { v.connection = time.Time{} }

// Workers may be evicted until a third of a lease after the last answer, by Redis's time. A time that's further ahead
// than passed here shows that Redis's clock has jumped.
func TestWitnessOfTime(t *testing.T) {
	t.Parallel()
	v := &view{witness: witness{beat: time.Second}, now: time.Unix(1e9, 0)}
	if v.hasJumped(1e12, v.now) {
		t.Error("nothing is known before the first answer")
	}
	v.connection = v.now
	v.send(0, false)
	v.beats(4)
	sent := v.now.UnixMilli()
	v.pass(2 * time.Second)
	if got := v.judges(v.now, v.connection); got != sent+1000 {
		t.Error(got-sent, "ms after the last answer")
	}
	v.pass(1)
	if v.judges(v.now, v.connection) != 0 {
		t.Error("it may judge without an answer for two heartbeats")
	}
	for ms, jumped := range map[int64]bool{-1e6: false, 0: false, 3000: false, 3001: true} {
		if v.hasJumped(sent+ms, v.now) != jumped {
			t.Errorf("%d ms, 2 s after an answer", ms)
		}
	}
}
