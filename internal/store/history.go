package store

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var record = verb("record")

// A Recorded is what a peer has counted on a queue, in the order of record.lua's arguments: tasks started, finished,
// failed and retried, ms of handlers, and how many waited and how many ran as long as each bucket says, in turn.
type Recorded [5 + 2*len(inspect.Histogram{})]int64

// RecordAll adds counts to the histories of queues, in one exchange. A call with an error of ErrUnknown may have done so.
func RecordAll(ctx context.Context, r Runner, queues []*Shared, counts []Recorded) []error {
	calls, errs := make([]redisconn.Call, len(queues)), make([]error, len(queues))
	for i, q := range queues {
		line := record.line(q, len(counts[i]))
		for _, n := range counts[i] {
			line = append(line, n)
		}
		calls[i] = record.callOf(q, line)
	}
	for i, reply := range r.Do(ctx, calls...) {
		errs[i] = read(reply.Value, reply.Err).err
	}
	return errs
}

// MaxPeriods is how many periods of its history a queue has at most: the minutes of 25 hours, or the hours of 61 days.
const MaxPeriods = 1500

// History reads the periods of a queue's history from one time to before another: minutes, or hours. What isn't kept is
// empty.
func History(ctx context.Context, r Runner, q keys.Queue, from, to time.Time, hours bool) ([]inspect.Period, error) {
	grain, unit, name := time.Minute, time.Hour, "h%d"
	if hours {
		grain, unit, name = time.Hour, 24*time.Hour, "d%d"
	}
	var all []inspect.Period
	var calls []redisconn.Call
	for at := from.Truncate(grain); at.Before(to) && len(all) < MaxPeriods; {
		key := q.History(fmt.Sprintf(name, at.Unix()/int64(unit.Seconds())))
		line := redis.Args{key}
		for next := at.Truncate(unit).Add(unit); at.Before(next) && at.Before(to) && len(all) < MaxPeriods; at = at.Add(grain) {
			line, all = line.Add(int64(at.Sub(at.Truncate(unit))/grain)), append(all, inspect.Period{At: at})
		}
		calls = append(calls, redisconn.Command("HMGET", line...))
	}
	rest := all
	for _, reply := range r.Do(ctx, calls...) {
		texts, err := redis.ByteSlices(reply.Value, reply.Err)
		if err != nil {
			return nil, err
		}
		for i, text := range texts[:min(len(texts), len(rest))] {
			readPeriod(&rest[i], text)
		}
		rest = rest[min(len(texts), len(rest)):]
	}
	for i := 1; i < len(all); i++ {
		if !all[i].Recorded {
			before := &all[i-1]
			all[i].Waiting, all[i].MostWaiting, all[i].FailedTasks = before.Waiting, before.Waiting, before.FailedTasks
		}
	}
	return all, nil
}

// readPeriod decodes a record, as in record.lua. Another program may have written anything.
func readPeriod(p *inspect.Period, text []byte) {
	var n [10 + 2*len(inspect.Histogram{})]int64
	for i := 0; len(text) > 0 && i < len(n); i++ {
		v, size := binary.Uvarint(text)
		if size <= 0 {
			return
		}
		n[i], text = int64(min(v, 1<<53)), text[size:]
		p.Recorded = true
	}
	ms := func(n int64) time.Duration { return time.Duration(min(n, longestTimeout)) * time.Millisecond }
	p.Enqueued, p.Started, p.Finished, p.Failed, p.Retried, p.Busy = n[0], n[1], n[2], n[3], n[4], ms(n[5])
	p.Waiting, p.MostWaiting, p.Oldest, p.FailedTasks = int(n[6]), int(n[7]), ms(n[8]), int(n[9])
	for i := range p.Waited {
		p.Waited[i], p.Ran[i] = n[10+2*i], n[11+2*i]
	}
}

// MaxVersions is how many versions of the service are kept: the newest.
const MaxVersions = 100

// NoteVersion notes that a peer has a version of the service, unless that is known.
func NoteVersion(ctx context.Context, r Runner, s keys.Space, version string) error {
	_, err := redis.Float64(r.One(ctx, redisconn.Command("ZSCORE", s.Versions(), version)))
	if err != redis.ErrNil {
		return err
	}
	now, err := timeIn(reply(r.One(ctx, redisconn.Command("TIME").At(s.Versions()))))
	if err != nil {
		return err
	}
	replies := r.Do(ctx, redisconn.Command("ZADD", s.Versions(), "NX", now, version), redisconn.Command("ZCARD", s.Versions()))
	if n := readAs(replies[1], redis.Int, &replies[0].Err); n > MaxVersions {
		_, err = r.One(ctx, redisconn.Command("ZPOPMIN", s.Versions()))
	}
	return cmp.Or(replies[0].Err, err)
}

// Versions returns the versions of the service, oldest first.
func Versions(ctx context.Context, r Runner, s keys.Space) (all []inspect.Deploy, err error) {
	found, err := readRanked(reply(r.One(ctx, redisconn.Command("ZRANGE", s.Versions(), -MaxVersions, -1, "WITHSCORES"))), MaxVersions)
	for _, v := range found {
		all = append(all, inspect.Deploy{Version: v.name, At: Moment(whole(v.score))})
	}
	return all, err
}
