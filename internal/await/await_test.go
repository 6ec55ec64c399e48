package await

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// A world simulates Redis and its messages for a Hub.
type world struct {
	mu        sync.Mutex
	ends      map[string]store.Fate
	err       error
	asked     int // number of names read
	calls     int
	listeners map[string]store.EndListener
	mute      bool // no messages arrive
}

func newWorld(timeout time.Duration) (*world, *Hub) {
	w := &world{ends: map[string]store.Fate{}, listeners: map[string]store.EndListener{}}
	return w, New(Config{Listen: w.listen, Ask: w.ask, Timeout: timeout})
}

func (w *world) listen(_ store.Keys, name string, by store.EndListener) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listeners[name] = by
	if !w.mute {
		go func() { by.Heard(true); by.Look() }()
	}
	return func() { w.mu.Lock(); defer w.mu.Unlock(); delete(w.listeners, name) }, nil
}

func (w *world) ask(_ context.Context, _ store.Keys, names []string) (all []store.Fate, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(names) > store.MaxEnds {
		panic(fmt.Sprint("a call for ", len(names), " names"))
	}
	w.calls++
	w.asked += len(names)
	if w.err != nil {
		return nil, w.err
	}
	for _, e := range names {
		end, known := w.ends[e]
		if !known {
			end = store.Fate{Waits: -1, Runs: -1}
		}
		all = append(all, end)
	}
	return all, nil
}

// set puts an name into a state, and sends a message if tells is set.
func (w *world) set(name string, e store.Fate, tells bool) {
	w.mu.Lock()
	w.ends[name] = e
	by, there := w.listeners[name]
	w.mu.Unlock()
	if tells && there {
		by.Look()
	}
}

func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

func waits(keep time.Duration) store.Fate { return store.Fate{Waits: keep, Runs: -1} }

func ended(at int64) store.Fate {
	return store.Fate{Ended: &store.Ended{End: store.EndFinished, At: at}, Waits: -1, Runs: -1}
}

var gone = store.Fate{Waits: -1, Runs: -1}

// waiting calls Wait in the background, and returns a function that returns its result.
func waiting(ctx context.Context, h *Hub, name string) func() string {
	said := make(chan string, 1)
	go func() {
		r, err := h.Wait(ctx, store.Keys{}, name)
		switch {
		case err != nil:
			said <- err.Error()
		case r == nil:
			said <- "deleted"
		default:
			said <- fmt.Sprint(r.End, " ", r.At)
		}
	}()
	return func() string {
		synctest.Wait()
		select {
		case s := <-said:
			return s
		default:
			return "waits"
		}
	}
}

// Each row has Redis's successive answers, with or without a message, and the result of the call.
func TestWait(t *testing.T) {
	t.Parallel()
	both := store.Fate{Ended: &store.Ended{End: store.EndFailed, At: 1}, Waits: time.Minute, Runs: -1}
	for name, row := range map[string]struct {
		first  store.Fate
		want   string
		then   store.Fate
		tells  bool
		within time.Duration
		next   string
	}{
		"unknown":                      {first: gone, want: ErrUnknown.Error()},
		"has ended":                    {first: ended(1), want: "finished 1"},
		"keeps none":                   {first: waits(0), want: errNotKept.Error()},
		"ends, with a message":         {first: waits(time.Minute), want: "waits", then: ended(1), tells: true, next: "finished 1"},
		"ends, and the message's lost": {first: waits(time.Minute), want: "waits", then: ended(1), within: 2 * slowly, next: "finished 1"},
		"a short one":                  {first: waits(time.Second), want: "waits", then: ended(1), within: time.Second / 2, next: "finished 1"},
		"runs":                         {first: store.Fate{Waits: -1, Runs: time.Minute}, want: "waits", then: ended(1), tells: true, next: "finished 1"},
		"put while another runs": {first: store.Fate{Waits: 0, Runs: time.Minute}, want: "waits",
			then: store.Fate{Ended: ended(1).Ended, Waits: 0, Runs: -1}, tells: true, next: "finished 1"},
		"deleted":                 {first: waits(time.Minute), want: "waits", then: gone, tells: true, next: "deleted"},
		"replaced":                {first: waits(time.Minute), want: "waits", then: store.Fate{Ended: &store.Ended{End: store.EndReplaced, At: 1}, Waits: 0, Runs: -1}, tells: true, next: "replaced 1"},
		"replaced by one without": {first: waits(time.Minute), want: "waits", then: waits(0), tells: true, next: errNotKept.Error()},
		"another after one":       {first: both, want: "waits", then: ended(2), tells: true, next: "finished 2"},
		"deleted after one":       {first: both, want: "waits", then: ended(1), tells: true, next: "deleted"},
		"still there":             {first: both, want: "waits", then: both, tells: true, next: "waits"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				ctx, cancel := context.WithCancel(t.Context())
				w, h := newWorld(time.Second)
				w.set("k:x", row.first, false)
				said := waiting(ctx, h, "k:x")
				is.Equal(said(), row.want)
				if row.want == "waits" {
					w.set("k:x", row.then, row.tells)
					time.Sleep(row.within)
					is.Equal(said(), row.next)
				}
				cancel()
				synctest.Wait()
				is.Equal(len(h.queues), 0)
				is.Equal(len(w.listeners), 0)
			})
		})
	}
}

// The result of a task that was last seen long ago may have expired: then it isn't known whether
// the task was deleted.
func TestExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		is := is.New(t)
		w, h := newWorld(time.Second)
		w.set("k:x", waits(time.Minute), false)
		said := waiting(t.Context(), h, "k:x")
		is.Equal(said(), "waits")
		w.fail(io.EOF)
		time.Sleep(2 * time.Minute)
		is.Equal(said(), "waits")
		w.set("k:x", gone, false)
		w.fail(nil)
		time.Sleep(time.Minute)
		is.Equal(said(), errExpired.Error())
	})
}

// A call waits out an outage, but before its first answer only for the call timeout. A refusal ends
// it.
func TestFailures(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	for name, row := range map[string]struct {
		err           error
		first, second string
	}{
		"an outage": {io.EOF, io.EOF.Error(), "waits"},
		"an error":  {no, "no", "waits"},
		"closed":    {store.ErrClosed, store.ErrClosed.Error(), store.ErrClosed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				is := is.New(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w, h := newWorld(time.Second)
				w.set("k:x", waits(time.Hour), false)
				early := waiting(ctx, h, "k:x")
				is.Equal(early(), "waits")
				w.fail(row.err)
				late := waiting(ctx, h, "k:y")
				time.Sleep(time.Minute)
				is.Equal(late(), row.first)
				is.Equal(early(), row.second)
				w.fail(nil)
				w.set("k:x", ended(1), false)
				time.Sleep(2 * slowly)
				if row.second == "waits" {
					is.Equal(early(), "finished 1")
				}
			})
		})
	}
}

// Closing the peer ends all calls.
func TestClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, h := newWorld(time.Second)
		w.set("k:x", waits(time.Hour), false)
		a, b := waiting(t.Context(), h, "k:x"), waiting(t.Context(), h, "k:x")
		synctest.Wait()
		w.listeners["k:x"].Closed()
		is := is.New(t)
		is.Equal(a(), store.ErrClosed.Error())
		is.Equal(b(), store.ErrClosed.Error())
	})
}

// The last caller leaves no goroutine behind, even if the next read has to wait.
func TestLastCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // which fails if one is left
		ctx, cancel := context.WithCancel(t.Context())
		w, h := newWorld(time.Second)
		w.set("k:x", waits(time.Hour), false)
		said := waiting(ctx, h, "k:x")
		synctest.Wait()
		w.fail(io.EOF)
		w.set("k:x", waits(time.Hour), true) // it's read, in vain
		synctest.Wait()
		cancel()
		is.New(t).Equal(said(), context.Canceled.Error())
	})
}

// A thousand calls are read in pages, each about once per slow interval, spread over time. If
// messages don't arrive, they're read more often.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	for _, mute := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			is := is.New(t)
			const calls = 1000
			ctx, cancel := context.WithCancel(t.Context())
			w, h := newWorld(time.Second)
			w.mute = mute
			var all []func() string
			for i := range calls {
				name := fmt.Sprint("k:", i)
				w.set(name, waits(time.Hour), false)
				all = append(all, waiting(ctx, h, name))
			}
			synctest.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			w.mu.Lock()
			asked, each := w.asked, 60/15.0+1
			if mute {
				each = 60/1.5 + 1
			}
			is.True(float64(asked) < 1.3*calls*each)
			is.True(float64(asked) > 0.7*calls*each)
			w.asked, w.calls = 0, 0
			w.mu.Unlock()
			for i := range calls {
				w.set(fmt.Sprint("k:", i), ended(1), !mute)
			}
			time.Sleep(2 * quickly)
			for _, said := range all {
				if got := said(); got != "finished 1" {
					t.Fatal(got)
				}
			}
			is.True(w.calls <= calls) // mostly far fewer
			cancel()
			synctest.Wait()
			is.Equal(len(h.queues), 0)
		})
	}
}
