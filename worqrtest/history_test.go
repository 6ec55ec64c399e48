package worqrtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// A ledger has what a test knows about a queue: what happened, and when.
type ledger struct {
	mu  sync.Mutex
	all []inspect.Period // each has one thing
}

func (l *ledger) note(of inspect.Period) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.At = time.Now()
	l.all = append(l.all, of)
}

// until returns what happened before a time.
func (l *ledger) until(at time.Time) (sum inspect.Period) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.all {
		if p.At.Before(at) {
			sum.Add(p)
		}
	}
	return sum
}

// counted returns what can only grow.
func counted(p inspect.Period) [6]int64 {
	return [6]int64{p.Enqueued, p.Started, p.Finished, p.Failed, p.Retried, p.Ran.Count()}
}

// The history of random tasks, over days, is right to the task: no hour has anything before it happened, all is there a
// heartbeat and a minute later, unless Redis didn't answer, and minutes and hours agree.
func TestHistory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	Virtual(t, func(t *testing.T, redis *Redis) {
		r, l, began := rand.New(rand.NewPCG(seed, 0)), &ledger{}, time.Now()
		const outage = 10 * time.Minute
		days := time.Duration(2)
		if testing.Short() {
			days = 1
		}
		handler := func(ctx context.Context, task *worqr.Task) error {
			l.note(inspect.Period{Started: 1})
			start, words := time.Now(), strings.Fields(string(task.Payload))
			d, _ := time.ParseDuration(words[0])
			time.Sleep(d)
			end := inspect.Period{Finished: 1, Busy: time.Since(start)}
			end.Ran[inspect.BucketOf(end.Busy)] = 1
			switch {
			case words[1] == "fails":
				end.Finished, end.Failed = 0, 1
			case words[1] == "retried" && task.Retries == 0:
				end.Finished, end.Retried = 0, 1
			}
			l.note(end)
			switch {
			case end.Failed > 0:
				return worqr.Permanent(errors.New("fails"))
			case end.Retried > 0:
				return errors.New("retried")
			}
			return nil
		}
		peers := make([]*Peer, 3)
		ends := make([]func(), len(peers))
		var q *worqr.Queue
		serve := func(i int) {
			peers[i] = redis.Peer(&worqr.Options{Version: "v1", Lease: 3 * time.Minute})
			q = peers[i].Queue("q")
			q.Handle(handler, &worqr.HandleOptions{Concurrency: 3})
			ends[i] = peers[i].Serve()
		}
		for i := range peers {
			serve(i)
		}
		hours := func(from, to time.Time) (sum inspect.Period) {
			t.Helper()
			all, err := q.History(t.Context(), from, to, time.Hour)
			must(t, err)
			for _, p := range all {
				sum.Add(p)
			}
			return sum
		}
		must(t, q.Enqueue(t.Context(), []byte("1s done")))
		l.note(inspect.Period{Enqueued: 1})
		time.Sleep(2 * time.Minute) // from now on, it's known what was enqueued before
		for time.Since(began) < days*24*time.Hour {
			for range r.IntN(4) {
				// No handler takes longer than Drain, since a deploy would abandon it: it doesn't look at its context.
				d := min(time.Duration(r.ExpFloat64()*float64(10*time.Second)).Round(time.Millisecond), 20*time.Second)
				payload := []byte(d.String() + " " + []string{"done", "done", "done", "fails", "retried"}[r.IntN(5)])
				switch r.IntN(3) {
				case 0:
					must(t, q.Enqueue(t.Context(), payload))
				case 1:
					_, err := q.Add(t.Context(), worqr.TaskSpec{Payload: payload, Headers: map[string]string{"a": "b"}})
					must(t, err)
				case 2:
					_, err := q.Add(t.Context(), worqr.TaskSpec{Payload: payload, At: time.Now().Add(time.Duration(r.IntN(int(time.Hour))))})
					must(t, err)
				}
				l.note(inspect.Period{Enqueued: 1})
			}
			switch i := r.IntN(len(peers)); r.IntN(100) {
			case 0: // a deploy
				ends[i]()
				serve(i)
			case 1:
				redis.Miniredis().SetError("LOADING Redis is loading the dataset in memory")
				time.Sleep(outage)
				redis.Miniredis().SetError("")
			}
			time.Sleep(time.Duration(r.IntN(int(10 * time.Minute))))
		}
		time.Sleep(3 * time.Hour)
		for _, end := range ends {
			end()
		}
		until := time.Now().Add(time.Hour)
		reader := redis.Peer(nil)
		q = reader.Queue("q")
		all := hours(began, until)
		want := l.until(until)
		if counted(all) != counted(want) || all.Ran != want.Ran || (all.Busy-want.Busy).Abs() > time.Minute {
			t.Fatalf("recorded %+v\nwant     %+v", all, want)
		}
		if n := all.Waited.Count(); n == 0 || n > want.Enqueued {
			t.Errorf("%d tasks waited", n)
		}
		for at := began; at.Before(until); at = at.Add(time.Hour) {
			got, most, least := counted(hours(began, at)), counted(l.until(at)), counted(l.until(at.Add(-2*time.Minute-outage)))
			for i := range got {
				if got[i] > most[i] || got[i] < least[i] {
					t.Errorf("%v: recorded %v, want %v to %v", at, got, least, most)
				}
			}
		}
		// Hours and minutes agree, as far as both are kept.
		for at := until.Truncate(time.Hour).Add(-20 * time.Hour); at.Before(until); at = at.Add(time.Hour) {
			var sum inspect.Period
			minutes, err := q.History(t.Context(), at, at.Add(time.Hour), time.Minute)
			must(t, err)
			for _, p := range minutes {
				sum.Add(p)
			}
			if hour := hours(at, at.Add(time.Hour)); counted(hour) != counted(sum) || hour.Waited != sum.Waited || hour.MostWaiting != sum.MostWaiting {
				t.Errorf("%v: hour %+v, minutes %+v", at, hour, sum)
			}
		}
		if deploys, err := reader.Deploys(t.Context()); err != nil || len(deploys) != 1 || deploys[0].Version != "v1" || deploys[0].At.After(began.Add(time.Minute)) {
			t.Errorf("deploys: %v, %v", deploys, err)
		}
		// Nothing stays, and there were never many keys.
		kept := func() (n int) {
			for _, key := range redis.Miniredis().Keys() {
				if strings.Contains(key, ":history:") {
					n++
				}
			}
			return n
		}
		if n := kept(); n > 26+int(days)+1 {
			t.Errorf("%d keys", n)
		}
		redis.Miniredis().FastForward(62 * 24 * time.Hour)
		if n := kept(); n > 0 {
			t.Errorf("%d keys stay", n)
		}
	})
}

// What is enqueued for later counts at once, even if nothing else happens.
func TestHistoryOfLater(t *testing.T) {
	Virtual(t, func(t *testing.T, redis *Redis) {
		peer := redis.Peer(&worqr.Options{Lease: time.Minute})
		q := peer.Queue("q")
		q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
		defer peer.Serve()()
		time.Sleep(time.Hour)
		at := time.Now()
		_, err := q.Add(t.Context(), worqr.TaskSpec{At: at.Add(5 * time.Hour)}, worqr.TaskSpec{Key: "a", At: at.Add(6 * time.Hour)})
		must(t, err)
		time.Sleep(2 * time.Minute)
		all, err := q.History(t.Context(), at, time.Now(), time.Minute)
		must(t, err)
		var sum inspect.Period
		for _, p := range all {
			sum.Add(p)
		}
		if sum.Enqueued != 2 || sum.Started != 0 {
			t.Errorf("recorded %+v", sum)
		}
	})
}

// A peer with NoHistory writes nothing, nor does one whose queues are idle.
func TestNoHistory(t *testing.T) {
	Virtual(t, func(t *testing.T, redis *Redis) {
		off, idle := redis.Peer(&worqr.Options{NoHistory: true, Version: "v1"}), redis.Peer(nil)
		done := func(context.Context, *worqr.Task) error { return nil }
		off.Queue("off").Handle(done, nil)
		idle.Queue("idle").Handle(done, nil)
		stop, end := off.Serve(), idle.Serve()
		must(t, off.Queue("off").Enqueue(t.Context(), []byte("a")))
		WaitIdle(t, off.Queue("off"))
		time.Sleep(24 * time.Hour)
		stop()
		end()
		for _, key := range redis.Miniredis().Keys() {
			if strings.Contains(key, ":history:") || strings.Contains(key, ":versions") {
				t.Error(key)
			}
		}
	})
}
