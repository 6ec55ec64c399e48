package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// What Redis refuses is part of the next call, for an hour. Queues on which nothing has happened aren't written.
func TestHistoryIsRefused(t *testing.T) {
	is := redistest.Parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	f := newPeer(t, redistest.URL(), prefix, time.Hour)
	q, count := f.Space.Queue("q"), f.Engine.Counts.Of("q")
	finished := func() (n int64) {
		now := time.Now()
		for _, p := range redistest.Sure(store.History(t.Context(), f.Lines.Calls, q, now.Add(-time.Hour), now.Add(time.Minute), false))(t) {
			n += p.Finished
		}
		return n
	}
	record := func() { f.record(t.Context(), time.Minute, nil) }
	block := func(with string) { // this hour's keys, and the next one's
		for i := range int64(2) {
			redistest.Do(t, c, "DEL", q.History(fmt.Sprint("h", time.Now().Unix()/3600+i)))
			if with != "" {
				redistest.Do(t, c, "SET", q.History(fmt.Sprint("h", time.Now().Unix()/3600+i)), with)
			}
		}
	}
	f.Engine.Counts.Of("idle")
	f.Engine.Counts.Of("q (failed)").Finished.Add(1)
	record()
	is.Equal(redistest.Keys(t, c, prefix), nil)
	count.Finished.Add(2)
	record()
	count.Finished.Add(3)
	block("x")
	record()
	record()
	block("")
	count.Finished.Add(5)
	record()
	is.Equal(finished(), int64(3+5)) // the first 2 were deleted
	record()
	is.Equal(finished(), int64(3+5))
	count.Finished.Add(7)
	block("x")
	record()
	late := f.written["q"]
	late.failing = late.failing.Add(-unrecorded)
	f.written["q"] = late
	record()
	block("")
	count.Finished.Add(1)
	record()
	is.Equal(finished(), int64(1))
}
