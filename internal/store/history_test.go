package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// past returns what the history has of the last hour, together, and of the last two.
func (b *bench) past() (minutes, hours inspect.Period) {
	b.Helper()
	now := time.Now()
	all := redistest.Sure(History(b.Context(), b.line, b.q, now.Add(-time.Hour), now.Add(time.Minute), false))(b)
	b.is.Equal(len(all), 61+map[bool]int{true: 1}[now.Truncate(time.Minute) != now])
	for _, p := range all {
		minutes.Add(p)
	}
	for _, p := range redistest.Sure(History(b.Context(), b.line, b.q, now.Add(-time.Hour), now.Add(time.Minute), true))(b) {
		hours.Add(p)
	}
	return minutes, hours
}

func (b *bench) record(counts Recorded) error {
	return RecordAll(b.Context(), b.line, []*Shared{SharedOf(b.q)}, []Recorded{counts})[0]
}

// The counts of all calls add up, in the minutes and in the hours. Enqueued tasks are counted by Redis.
func TestHistory(t *testing.T) {
	b := newBench(t)
	nothing, _ := b.past()
	b.is.Equal(nothing, inspect.Period{})
	b.enqueue("a")
	b.is.NoErr(b.record(Recorded{}))
	b.enqueue("b", "c")
	b.add(task("k", "K"), Task{Name: NameOf("later"), At: 4e12, Rule: Always})
	b.do("ZADD ages 9 " + fmt.Sprint(time.Now().Add(-time.Hour).UnixMilli()))
	b.start("w", 2)
	redistest.Do(t, b.conn, "ZADD", b.q.Failed().Aside(), 1, "k:f#1")
	one := Recorded{200, 100, 3, 20_000, 1 << 40}
	one[5], one[6], one[len(one)-1] = 7, 1, 300
	for range 3 {
		b.is.NoErr(b.record(one))
	}
	want := inspect.Period{
		Recorded: true, Enqueued: 5, Started: 600, Finished: 300, Failed: 9, Retried: 60_000, Busy: 3 << 40 * time.Millisecond,
		Waiting: 2, MostWaiting: 2, FailedTasks: 1, Waited: inspect.Histogram{0: 21}, Ran: inspect.Histogram{0: 3, 11: 900},
	}
	minutes, hours := b.past()
	b.is.True(minutes.Oldest >= time.Hour && minutes.Oldest < time.Hour+time.Minute)
	minutes.Oldest, hours.Oldest = 0, 0
	b.is.Equal(minutes, want)
	b.is.Equal(hours, want)
}

// Keys expire. A record is small enough for Redis's compact encoding, unless it has very large numbers.
func TestHistoryIsSmall(t *testing.T) {
	b := newBench(t)
	full := Recorded{10_000, 10_000, 100, 100, 1_000_000}
	for i := 5; i < 13; i++ {
		full[i] = 2_000
	}
	b.is.NoErr(b.record(full))
	kept := map[string]time.Duration{"h": 25 * time.Hour, "d": 61 * 24 * time.Hour}
	for _, key := range redistest.Keys(t, b.conn, strings.TrimSuffix(b.q.History(""), ":")) {
		of := kept[key[len(b.q.History("")):][:1]]
		ttl := time.Duration(redistest.Sure(redis.Int64(b.conn.Do("PTTL", key)))(t)) * time.Millisecond
		b.is.True(ttl <= of && ttl > of-time.Minute)
		b.is.True(strings.HasPrefix(redistest.Sure(redis.String(b.conn.Do("OBJECT", "ENCODING", key)))(t), "list"))
		size := redistest.Sure(redis.Strings(b.conn.Do("HGETALL", key)))(t)
		b.is.True(len(size[1]) <= 45)
		delete(kept, key[len(b.q.History("")):][:1])
	}
	b.is.Equal(len(kept), 0)
}

// What another program has written there does no harm.
func TestHistoryIsForeign(t *testing.T) {
	b := newBench(t)
	now := time.Now().Unix()
	for at := now; at <= now+60; at += 60 {
		redistest.Do(t, b.conn, "HSET", b.q.History(fmt.Sprint("h", at/3600)), at%3600/60, strings.Repeat("\xff", 1000))
	}
	b.past()
	b.is.NoErr(b.record(Recorded{1}))
	b.past()
	redistest.Do(t, b.conn, "HSET", b.q.State(), "seen", "x")
	b.is.NoErr(b.record(Recorded{1})) // it begins anew
	redistest.Do(t, b.conn, "HSET", b.q.State(), "seen", 0, "taken", -5, "added", -5)
	b.is.NoErr(b.record(Recorded{1}))
}

// A full Redis refuses the whole record.
func TestHistoryOnFullRedis(t *testing.T) {
	redistest.OneServer(t, redistest.OwnServer)
	server := redistest.Start(t)
	b := benchAt(t, is.New(t), server.URL(), "p")
	b.enqueue("a")
	redistest.Do(t, b.conn, "CONFIG", "SET", "maxmemory", "1")
	b.is.True(IsFull(b.record(Recorded{1})))
	redistest.Do(t, b.conn, "CONFIG", "SET", "maxmemory", "0")
	b.is.NoErr(b.record(Recorded{1}))
	p, _ := b.past()
	b.is.Equal([2]int64{p.Enqueued, p.Started}, [2]int64{1, 1})
}

// Versions of the service are kept with the time of the first peer that has them: the newest hundred.
func TestVersions(t *testing.T) {
	b := newBench(t)
	for i := range MaxVersions + 5 {
		b.is.NoErr(NoteVersion(t.Context(), b.line, b.space, fmt.Sprint("v", i)))
		redistest.Do(t, b.conn, "ZADD", b.space.Versions(), 1000+i, fmt.Sprint("v", i))
	}
	b.is.NoErr(NoteVersion(t.Context(), b.line, b.space, "v50"))
	all := redistest.Sure(Versions(t.Context(), b.line, b.space))(t)
	b.is.Equal(len(all), MaxVersions)
	b.is.Equal(all[0], inspect.Deploy{Version: "v5", At: time.UnixMilli(1005)})
	b.is.Equal(all[MaxVersions-1].Version, "v104")
}
