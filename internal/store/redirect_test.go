package store

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// A round that waits for its slot to arrive may be overtaken by as many as may be under way beside
// it, and is still carried out. A worker has no more under way: it waits for the oldest.
func TestStalledRedirect(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := redistest.StartCluster(t, 2, 0)
	place := sure(Open(c.URL(), Access{}))(t)
	lines, _ := linesTo(t, place, 20*time.Second)
	s := SpaceAt(place, "p")
	q := &Served{Lines: lines, Name: "q", ID: "q", Keys: s.Queue("q")}
	ctx := t.Context()
	tokens, _, err := Tokens(ctx, lines.Control, []Keys{q.Keys})
	is.NoErr(err)
	joined := JoinAll(ctx, lines.Control, "w", time.Hour, []Join{{Queue: q.Keys, Asked: tokens[0], Round: Lanes}})[0]
	is.NoErr(joined.Err)
	is.True(joined.Joined)
	slot := keys.Slot("{q}")
	for n := int64(Lanes + 1); n < 10*Lanes; n += Lanes {
		from := c.Owner(t, slot)
		to := c.Nodes[0]
		if to == from {
			to = c.Nodes[1]
		}
		c.BeginMove(t, slot, to) // rounds are refused from now on, since the absent key may be there
		first := q.Send(0, &Round{Worker: "w", Number: n, Lease: time.Hour})
		for c.MoveKeys(t, slot, 100, from, to) > 0 {
		}
		c.EndMove(t, slot, from, to)
		for lane := int64(1); lane < Lanes; lane++ {
			next := q.Send(int(lane), &Round{Worker: "w", Number: n + lane, Lease: time.Hour})
			_, err := next.Wait(ctx)
			is.NoErr(err)
		}
		_, err := first.Wait(ctx)
		is.NoErr(err)
	}
}
