package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
)

// measureRecovery kills a worker that holds ten tasks, and tells after how long
// another, which was idle, has started the first and the last of them.
func measureRecovery(ctx context.Context, j job) (sample, error) {
	return afterKill(ctx, j, "block", "rescue")
}

// measureReturn kills a worker that holds many tasks, and tells how long it
// takes another to put them back.
func measureReturn(ctx context.Context, j job) (sample, error) {
	return afterKill(ctx, j, "hold", "sweep")
}

// afterKill starts a child that holds the tasks and one that looks on, kills the
// first, and returns what the second has to say. Times it says since the epoch
// are made times since the kill.
func afterKill(ctx context.Context, j job, holding, looking string) (sample, error) {
	return withServer(ctx, j, func(j job, _ *server) (found sample, err error) {
		children := make([]worker, 2)
		for i, as := range []string{holding, looking} {
			j.Measure = as
			if children[i], err = ready(ctx, j); err != nil {
				return sample{}, err
			}
			defer children[i].Kill()
		}
		time.Sleep(rand.N(time.Second)) // anywhere between two beats
		killed := seconds(time.Now())
		children[0].Kill()
		found, err = children[1].next()
		for _, moment := range []string{"first s", "last s"} {
			if at, ok := found.Values[moment]; ok {
				found.Values[moment] = at - killed
			}
		}
		return found, err
	})
}

// seconds since the epoch, which all processes of a machine share.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// blockHandlers holds tasks in handlers that do not return.
func blockHandlers(j job, s system, m *meter, say func(sample)) error {
	if err := preload(s, j.N, j.Size); err != nil {
		return err
	}
	return block(s, 1, j.N, say)
}

// block has workers hold as many tasks as they have handlers, which do not return, and
// says when they do.
func block(s system, workers, handlers int, say func(sample)) error {
	var held atomic.Int64
	for range workers {
		err := s.work(handlers, func([]byte) {
			held.Add(1)
			select {}
		})
		if err != nil {
			return err
		}
	}
	if err := reaches("all tasks are held", &held, workers*handlers); err != nil {
		return err
	}
	say(sample{})
	select {}
}

// rescueTasks is an idle worker that starts what another has left.
func rescueTasks(j job, s system, m *meter, say func(sample)) error {
	starts := make(chan time.Time, 10*j.N) // in case some start twice
	if err := s.work(j.N, func([]byte) { starts <- time.Now() }); err != nil {
		return err
	}
	time.Sleep(j.Settle)
	say(sample{})
	var first, last time.Time
	for n, end := 0, time.After(patience); n < j.N; n++ {
		select {
		case last = <-starts:
		case <-end:
			return fmt.Errorf("wait for the tasks of the killed worker: %d of %d started: %w", n, j.N, errPatience)
		}
		if n == 0 {
			first = last
		}
	}
	say(sample{Values: map[string]float64{"first s": seconds(first), "last s": seconds(last)}})
	return nil
}

// holdTasks holds tasks without handlers, which may be many more.
func holdTasks(j job, s system, m *meter, say func(sample)) error {
	if err := preload(s, j.N, j.Size); err != nil {
		return err
	}
	if err := s.hold(j.N); err != nil {
		return err
	}
	say(sample{})
	select {}
}

// measureSweep is a peer without handlers that looks after another. It has Redis
// note how long each call takes.
func measureSweep(j job, s system, m *meter, say func(sample)) error {
	peers := s.(*peerSystem)
	if _, err := peers.joined(); err != nil {
		return err
	}
	for _, set := range [][]any{{"slowlog-max-len", 100_000}, {"slowlog-log-slower-than", 50}} {
		if _, err := m.conn.Do("CONFIG", redis.Args{"SET"}.Add(set...)...); err != nil {
			return fmt.Errorf("have Redis log slow calls: %w", err)
		}
	}
	time.Sleep(j.Settle)
	if _, err := m.conn.Do("SLOWLOG", "RESET"); err != nil {
		return err
	}
	say(sample{})

	var first time.Time
	err := until("the tasks are back", func() (bool, error) {
		n, err := peers.waiting()
		if n > 0 && first.IsZero() {
			first = time.Now()
		}
		return n == j.N, err
	})
	if err != nil {
		return err
	}
	last := time.Now()
	longest, calls, err := slowest(m.conn)
	if err != nil {
		return err
	}
	say(sample{Values: map[string]float64{
		"first s": seconds(first), "last s": seconds(last), "sweep s": last.Sub(first).Seconds(),
		"longest ms": longest, "calls": float64(calls),
	}})
	return nil
}

// slowest returns how long the longest script took, in ms, and how many are
// noted.
func slowest(c redis.Conn) (longest float64, n int, err error) {
	entries, err := redis.Values(c.Do("SLOWLOG", "GET", -1))
	if err != nil {
		return 0, 0, fmt.Errorf("read which calls were slow: %w", err)
	}
	for _, e := range entries {
		var id, at, micros int64
		var call []string
		fields, err := redis.Values(e, nil)
		if err != nil {
			return 0, 0, err
		}
		if _, err := redis.Scan(fields, &id, &at, &micros, &call); err != nil {
			return 0, 0, err
		}
		if call[0] == "EVALSHA" || call[0] == "EVAL" {
			longest = max(longest, float64(micros)/1e3)
			n++
		}
	}
	return longest, n, nil
}
