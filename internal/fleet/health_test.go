package fleet

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/engine"
	"github.com/worqr/worqr/internal/redistest"
)

// Only a loop that begins no turns is stuck; Redis may be silent for any time.
func TestStuck(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f, _ := newFleet(t, redistest.Prefix(t), 3*time.Second)
	is.NoErr(f.Stuck()) // there is no worker
	synctest.Test(t, func(t *testing.T) {
		w := &worker{fleet: f, circles: map[string]*circle{}, members: map[string]*member{}}
		c := &circle{worker: w, turned: time.Now(), answered: time.Now()}
		w.circles[""] = c
		f.worker = w
		time.Sleep(stuckAfter)
		is.NoErr(f.Stuck())
		is.True(errors.Is(f.Unfit(), engine.ErrLeaseExpired))
		c.noteAnswer(time.Now())
		is.NoErr(f.Unfit())
		time.Sleep(time.Second)
		is.Equal(f.Stuck().Error(), "no heartbeat has been attempted for 31s")
		c.noteTurn()
		is.NoErr(f.Stuck())
		is.Equal(time.Since(f.LastBeat()), time.Second)
	})
	f.worker = nil
	is.True(f.LastBeat().IsZero())
}
