package fleet

import (
	"testing"
	"time"
)

// A worker may evict others once beats have succeeded for a lease without a gap, on a connection
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
		"a lease has lapsed":                   {func(v *view) { v.beats(5); v.beat(0, true) }, 3 * beat},
		"Redis was down for two beats":         {func(v *view) { v.beats(5); v.pass(2*beat + 1); v.beat(0, false) }, 3 * beat},
		"an answer took half a beat":           {func(v *view) { v.beats(5); v.beat(beat/2, false) }, 0},
		"an answer took longer":                {func(v *view) { v.beats(5); v.beat(beat/2+1, false) }, 3 * beat},
		"the connection was cut":               {func(v *view) { v.beats(5); v.cut(); v.beat(0, false) }, beat},
		"it was cut every two beats":           {func(v *view) { v.beats(1); v.cut(); v.beats(2); v.cut(); v.beats(2) }, 0},
		"it was cut while Redis was down":      {func(v *view) { v.beats(5); v.cut(); v.pass(2*beat + 1); v.beat(0, false) }, 3 * beat},
		"it was cut, and nothing was sent yet": {func(v *view) { v.beats(5); v.cut() }, beat},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := &view{witness: witness{beat: beat}, now: time.Unix(1e9, 0)}
			v.made = v.now
			v.beat(0, false)
			c.happens(v)
			for waited := time.Duration(0); ; waited += beat / 4 { // it sends beats all the time
				if judges := v.beat(0, false); judges != (waited >= c.waits) {
					t.Fatalf("may judge: %t, %v later", judges, waited)
				} else if judges {
					return
				}
				v.pass(beat / 4)
			}
		})
	}
}

type view struct {
	witness
	now, made time.Time
}

func (v *view) pass(d time.Duration) { v.now = v.now.Add(d) }

// beat sends a beat that takes a given time. It reports whether the beat may evict others.
func (v *view) beat(takes time.Duration, lapsed bool) (judges bool) {
	sent := v.now
	judges = v.asks(sent, v.made)
	if v.made.IsZero() {
		v.made = v.now
	}
	v.pass(takes)
	v.receive(sent, v.now, lapsed)
	return judges
}

func (v *view) beats(n int) {
	for range n {
		v.pass(v.witness.beat)
		v.beat(0, false)
	}
}

// cut cuts the connection. The next beat notices that.
func (v *view) cut() {
	v.asks(v.now, v.made)
	v.witness.cut()
	v.made = time.Time{}
}
