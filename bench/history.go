package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// measureHistory writes the histories of queues as one peer does in N days, and measures what they take. Redis is told the
// time. Minutes are kept for 25 hours; before that, it writes only the hours.
func measureHistory(t *trial) sample {
	verbs := store.Verbs()
	source := verbs[slices.IndexFunc(verbs, func(v *store.Verb) bool { return v.Name == "record" })].Source()
	source = strings.Replace(source, "redis.call('TIME')", "{ table.remove(ARGV), 0 }", 1)
	digest := redistest.Sure(redis.String(t.conn.Do("SCRIPT", "LOAD", source)))(t)
	const day = 24 * time.Hour
	end := time.Now().UTC().Truncate(day)
	begin, recent := end.Add(-time.Duration(t.N)*day), end.Add(-25*time.Hour)
	want := make([][]inspect.Period, t.Queues) // by the day
	fill := func(from, to time.Time, minutes int) {
		conn := redistest.Dial(t, t.URL) // its buffers go with it
		defer conn.Close()
		for i := range want {
			want[i] = append(want[i], make([]inspect.Period, t.N-len(want[i]))...)
			q := keys.NewSpace("").Queue(fmt.Sprint("q", i))
			for at := from; at.Before(to); at = at.Add(time.Duration(minutes) * time.Minute) {
				if p := happened(at.Hour(), minutes, []float64{1000, 50, 1. / 30, 1. / 30, 1. / 30}[i*5/t.Queues]); p.Recorded {
					want[i][at.Sub(begin)/day].Add(p)
					args := redis.Args{digest, 2, q.State(), keys.None(q), "worqr", fmt.Sprintf("{q%d}", i)}
					args = args.Add(p.Started, p.Finished, p.Failed, p.Retried, p.Busy.Milliseconds())
					for i := range p.Ran {
						args = args.Add(p.Waited[i], p.Ran[i])
					}
					redistest.Must(t, conn.Send("HINCRBY", q.State(), "taken", p.Enqueued))
					redistest.Must(t, conn.Send("EVALSHA", args.Add(at.Unix())...))
				}
				if minutes == 60 {
					redistest.Must(t, conn.Send("DEL", q.History(fmt.Sprint("h", at.Unix()/3600))))
				}
			}
			redistest.Do(t, conn, "PING") // receives the replies
		}
	}
	redistest.Do(t, t.conn, "CONFIG", "SET", "latency-tracking", "no", "slowlog-max-len", 0) // they'd count as memory
	before := t.during(func() { fill(begin, recent, 60) })
	redistest.Do(t, t.conn, "CONFIG", "RESETSTAT")
	used := t.during(func() { fill(recent, end, 1) })
	var calls, usec float64
	_, stats, _ := strings.Cut(redistest.Sure(redis.String(t.conn.Do("INFO", "commandstats")))(t), "cmdstat_evalsha:")
	redistest.Sure(fmt.Sscanf(stats, "calls=%f,usec=%f", &calls, &usec))(t)
	for i, days := range want {
		q, ctx := t.system.(*peerSystem).sender.Queue(fmt.Sprint("q", i)), context.Background()
		all := inspect.Merged(redistest.Sure(q.History(ctx, begin, end, time.Hour))(t), day)
		all = append(all, inspect.Merged(redistest.Sure(q.History(ctx, end.Add(-day), end, time.Minute))(t), day)...)
		for i := range all {
			all[i].At = time.Time{}
		}
		if !slices.Equal(all, append(days, days[t.N-1])) {
			t.Fatalf("the history of q%d is\n%v\nwant\n%v", i, all, days)
		}
	}
	kB := map[string]float64{}
	for _, key := range redistest.Keys(t, t.conn, "worqr:history:{q0}") {
		kB[key[len("worqr:history:{q0}:"):][:1]] += float64(redistest.Sure(redis.Int64(t.conn.Do("MEMORY", "USAGE", key)))(t)) / 1e3
	}
	queues, memory, each := float64(t.Queues), before.memory+used.memory, usec/calls
	return sample{
		"MB": memory / 1e6, "bytes": memory / queues, "keys": float64(len(redistest.Keys(t, t.conn, "worqr:history"))) / queues,
		"minutes kB": kB["h"], "day kB": kB["d"] / float64(t.N), "script µs": each, "server µs": used.server / calls, "share %": 100 * each * 10 * queues / 60e6,
	}
}

// drawn is seeded, so that all rounds write the same.
var drawn = rand.New(rand.NewPCG(1, 1))

// happened draws what happens in some minutes, at so many tasks a minute on average over a day; most of it at noon.
func happened(hour, minutes int, rate float64) (p inspect.Period) {
	some := func(n float64) int64 { return int64(n + drawn.Float64()) } // n on average
	for range minutes {
		p.Started += some(rate * (1 - math.Cos(2*math.Pi*float64(hour)/24)) * (0.5 + drawn.Float64()))
	}
	n := float64(p.Started)
	p.Recorded, p.Enqueued, p.Failed, p.Retried = n > 0, p.Started, some(n/100), some(n/50)
	p.Finished, p.Busy = p.Started-p.Failed, time.Duration(40*n)*time.Millisecond
	for i, part := range []float64{0.02, 0.05, 0.5, 0.2, 0.1, 0.1, 0.02, 0.01} {
		p.Waited[i], p.Ran[i] = some(n*part), some(n*part)
	}
	return p
}
