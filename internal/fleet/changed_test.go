package fleet

import (
	"slices"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// When the server has changed, an idle peer finds out on which of its queues the new server lacks
// tokens that the old one had issued. It reports each loss once, and writes its registration and
// its list of queues again.
func TestChanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	var mu sync.Mutex
	var lost []string
	place, err := store.Open(redistest.URL(), store.Access{})
	is.NoErr(err)
	f, q := newFleetIn(t, place, prefix, -1, func(queue, _ string) { // no beat notices anything
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, queue)
	})
	forgot := make(chan struct{}, 10)
	f.CameBack = func() { forgot <- struct{}{} }
	all := map[string]*Queue{"q": q}
	for _, name := range []string{"r", "s", "t"} {
		all[name] = queueOf(f, name)
	}
	for name := range all {
		redistest.Do(t, c, "SET", prefix+":token:{"+name+"}", 100)
	}
	f.Changed() // there is nothing to compare
	<-forgot
	is.NoErr(f.Start(t.Context()))
	for _, of := range all {
		is.NoErr(f.Join(t.Context(), of))
	}
	// looked waits until the worker has checked: it has written its registration again.
	looked := func() []string {
		t.Helper()
		until(t, "the worker looks", func() bool { return redistest.Do(t, c, "SISMEMBER", prefix+":workers", f.ID()) == int64(1) })
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(lost)
		return slices.Clone(lost)
	}
	change := func() {
		w := f.present()
		is.NoErr(w.await(t.Context())) // a check in progress would write the registration, too
		redistest.Do(t, c, "DEL", prefix+":workers", prefix+":registry", prefix+":worker:"+f.ID())
		f.Changed()
		w.pass()
		<-forgot
	}
	change()
	is.Equal(looked(), nil)

	redistest.Do(t, c, "SET", prefix+":token:{q}", 99)
	redistest.Do(t, c, "SET", prefix+":token:{r}", 100)
	redistest.Do(t, c, "SET", prefix+":token:{s}", 101)
	redistest.Do(t, c, "DEL", prefix+":token:{t}")
	change()
	is.Equal(looked(), []string{"q", "t"})
	is.Equal(f.Engine.Counts().LostWrites.Load(), int64(2))
	change()
	is.Equal(looked(), []string{"q", "t"}) // the losses are already known
	redistest.Do(t, c, "SET", prefix+":token:{q}", 98)
	change()
	is.Equal(looked(), []string{"q", "q", "t"})

	redistest.Do(t, c, "DEL", prefix+":token:{q}")
	redistest.Do(t, c, "LPUSH", prefix+":token:{q}", "foreign")
	change()
	is.Equal(looked(), []string{"q", "q", "t"}) // Redis can't be asked
	redistest.Do(t, c, "DEL", prefix+":token:{q}")
	f.present().hurry() // as in the next turn
	until(t, "it asks again", func() bool { return f.Engine.Counts().LostWrites.Load() >= 4 })
	is.NoErr(f.Stop(t.Context()))
}

// A loss is reported once, whether rounds or the check after a change notice it first.
func TestLossIsReportedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	place, err := store.Open(redistest.URL(), store.Access{})
	is.NoErr(err)
	f, q := newFleetIn(t, place, prefix, -1, nil)
	is.NoErr(f.Start(t.Context()))
	is.NoErr(f.Join(t.Context(), q))
	w := f.present()
	m := w.members["q"]
	tasks := make([]any, 2000)
	for i := range tasks {
		tasks[i] = []byte("x")
	}
	_, err = store.Enqueue(t.Context(), f.Lines.Calls, q.Keys, tasks)
	is.NoErr(err)
	key := prefix + ":token:{q}"
	for losses := range int64(100) {
		is.Equal(f.Engine.Counts().LostWrites.Load(), losses)
		_, err = m.Start(t.Context(), 10)
		is.NoErr(err)
		token, err := redis.Int64(redistest.Do(t, c, "GET", key), nil)
		is.NoErr(err)
		redistest.Do(t, c, "SET", key, token-8)
		var both sync.WaitGroup
		both.Go(func() { is.True(w.lookForLoss(t.Context(), []*member{m})) })
		both.Go(func() {
			_, err := m.Start(t.Context(), 5)
			is.NoErr(err)
		})
		both.Wait()
	}
	is.NoErr(f.Stop(t.Context()))
	is.Equal(f.Engine.Counts().LostWrites.Load(), int64(100))
}
