package main

import (
	"context"
	"slices"
	"time"
)

// measureFar has a child do the job with a server that is a round trip away.
func measureFar(ctx context.Context, j job) (sample, error) {
	return withServer(ctx, j, func(j job, s *server) (sample, error) {
		p, err := startProxy(s, j.Trip)
		if err != nil {
			return sample{}, err
		}
		defer p.stop()
		j.URL = p.url
		return measureOn(ctx, j)
	})
}

// measureThrough tells how many tasks end in a second, from the start of the worker until
// the window is over, and one has ended, or nothing is left. How far away the server is, PING tells.
func measureThrough(j job, s system, m *meter, say func(sample)) error {
	var trips []float64
	for range 50 {
		before := time.Now()
		if _, err := m.conn.Do("PING"); err != nil {
			return err
		}
		trips = append(trips, millis(time.Since(before)))
	}
	slices.Sort(trips)
	if err := preload(s, j.N, j.Size); err != nil {
		return err
	}
	peers := s.(*peerSystem)
	ended := 0
	used, err := m.during(func() error {
		over := time.Now().Add(j.Window)
		if err := s.work(j.Handlers, func([]byte) { time.Sleep(j.Work) }); err != nil {
			return err
		}
		return until("the window is over", func() (bool, error) {
			ended = int(peers.finished())
			return ended == j.N || ended > 0 && !time.Now().Before(over), nil
		})
	})
	if err != nil {
		return err
	}
	values := used.perTask(ended)
	values["trip ms"] = percentile(trips, 50)
	say(sample{Values: values})
	return nil
}
