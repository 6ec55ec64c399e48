package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// What endangers tasks from outside comes from Redis: what it tells of itself, and its
// settings. How they are judged is in internal/doctor.
func TestCheckSurroundings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	conn := redistest.Dial(t, server.URL())
	for _, c := range []struct {
		name     string
		settings []any
		want     string // kind and severity, and what the text contains
	}{
		{"as it should be", []any{"maxmemory", "0"}, ""},
		{"evicts tasks", []any{"maxmemory-policy", "allkeys-lru", "maxmemory", "1gb"}, "eviction-policy warning noeviction"},
		{"everysec", []any{"maxmemory-policy", "noeviction", "appendfsync", "everysec"}, "persistence notice the last second or two"},
	} {
		t.Run(c.name, func(t *testing.T) { // one after the other: the server is shared
			is := is.New(t)
			redistest.Do(t, conn, "CONFIG", append([]any{"SET"}, c.settings...)...)
			report := sure(openDoctor(t, server.URL(), worqr.Options{Prefix: "p"}).Check(t.Context(), &worqr.CheckOptions{Ignore: []worqr.FindingKind{"vulnerable", "replication"}}))(t)
			is.True(report.OK())
			if c.want == "" {
				is.Equal(len(report.Findings), 0)
				return
			}
			is.Equal(len(report.Findings), 1)
			f, words := report.Findings[0], strings.SplitN(c.want, " ", 3)
			is.Equal(string(f.Kind)+" "+string(f.Severity), words[0]+" "+words[1])
			is.True(strings.Contains(f.Text, words[2]))
		})
	}
}

// A replica is no Redis to work with, and a primary may have to wait for one.
func TestCheckReplication(t *testing.T) {
	is := parallel(t)
	primary, replica := redistest.Start(t), redistest.Start(t)
	conn := redistest.Dial(t, replica.URL())
	host, port, _ := strings.Cut(primary.Addr(), ":")
	redistest.Do(t, conn, "REPLICAOF", host, port)
	texts := func(url string) string {
		return sure(openDoctor(t, url, worqr.Options{Prefix: "p"}).Check(t.Context(), nil))(t).String()
	}
	eventually(t, "the replica is connected", func() bool {
		return strings.Contains(info(t, redistest.Dial(t, primary.URL()), "replication"), "connected_slaves:1")
	})
	is.True(strings.Contains(texts(replica.URL()), "This Redis is a replica"))
	is.True(strings.Contains(texts(primary.URL()), "Set min-replicas-to-write"))
	redistest.Do(t, redistest.Dial(t, primary.URL()), "CONFIG", "SET", "min-replicas-to-write", "1")
	is.True(!strings.Contains(texts(primary.URL()), "replica"))
}

// Who may not ask Redis about itself is told so, and the rest is examined.
func TestCheckForbidden(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	redistest.DoAll(t, conn, [][]any{
		{"ACL", "SETUSER", "narrow", "on", ">secret", "~p:*", "&p_*", "+@all", "-@dangerous", "-@admin"},
		{"LPUSH", "p:process:{q}:p1", "a"},
	})
	p := openAt(t, strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	report := sure(p.Check(t.Context(), nil))(t)
	is.True(!report.OK())
	is.Equal(count(report, "not-permitted"), 5) // four sections and the settings
	is.Equal(count(report, "orphan"), 1)
	report = sure(p.Repair(t.Context(), nil))(t)
	is.True(report.OK())
	is.Equal(waiting(t, p.Queue("q")), []string{"a"})
}

// A Redis that is full can be repaired.
func TestRepairFull(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	redistest.Do(t, conn, "LPUSH", "p:process:{q}:p1", "a")
	redistest.Do(t, conn, "CONFIG", "SET", "maxmemory", "1")
	p := openDoctor(t, server.URL(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	report := sure(p.Repair(t.Context(), nil))(t)
	is.True(report.OK())
	is.Equal(count(report, "memory"), 1)
	is.Equal(count(report, "orphan"), 1)
	is.Equal(waiting(t, p.Queue("q")), []string{"a"})
}

// An era is a pool whose Redis has another time.
type era struct {
	url   string
	shift time.Duration
}

func (e era) GetContext(ctx context.Context) (redis.Conn, error) {
	c, err := redis.DialURLContext(ctx, e.url)
	return &eraConn{Conn: c, shift: e.shift}, err
}

type eraConn struct {
	redis.Conn
	shift time.Duration
	sent  []string // commands without their replies yet
}

func (c *eraConn) Send(name string, args ...any) error {
	c.sent = append(c.sent, name)
	return c.Conn.Send(name, args...)
}

func (c *eraConn) Receive() (any, error) {
	v, err := c.Conn.Receive()
	name := c.sent[0]
	c.sent = c.sent[1:]
	if name == "TIME" && err == nil {
		seconds, err := redis.Int64(v.([]any)[0], nil)
		v.([]any)[0] = fmt.Append(nil, seconds+int64(c.shift.Seconds()))
		return v, err
	}
	return v, err
}

// A clock that is off by more than anybody's is told of, ahead or behind.
func TestCheckClock(t *testing.T) {
	t.Parallel()
	for shift, want := range map[time.Duration]int{0: 0, time.Hour: 1, -time.Hour: 1} {
		is := is.New(t)
		p := worqr.New(era{redistest.URL(), shift}, &worqr.Options{Prefix: redistest.Prefix(t)})
		report := sure(p.Check(t.Context(), nil))(t)
		is.True(report.OK())
		is.Equal(count(report, "clock"), want)
		is.NoErr(p.Close())
	}
}
