package api

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// Check reads Redis's INFO and settings to find risks to tasks. Package internal/doctor tests how
// it judges them.
func TestCheckSurroundings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	conn := redistest.Dial(t, server.URL())
	for _, c := range []struct {
		name     string
		settings []any
		want     string // kind and severity, and part of the text
	}{
		{"as it should be", []any{"maxmemory", "0"}, ""},
		{"evicts tasks", []any{"maxmemory-policy", "allkeys-lru", "maxmemory", "1gb"}, "eviction-policy risk noeviction"},
		{"everysec", []any{"maxmemory-policy", "noeviction", "appendfsync", "everysec"}, "persistence notice the last second or two"},
	} {
		t.Run(c.name, func(t *testing.T) { // not in parallel: the server is shared
			is := is.New(t)
			redistest.Do(t, conn, "CONFIG", append([]any{"SET"}, c.settings...)...)
			report := sure(openDoctor(t, server.URL(), worqr.Options{Prefix: "p"}).Check(t.Context(), &inspect.CheckOptions{Ignore: []inspect.FindingKind{"replication"}}))(t)
			is.True(intact(report))
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

// A replica is reported, and so is a master that isn't configured to require replicas.
func TestCheckReplication(t *testing.T) {
	is := parallel(t)
	primary, replica, second := redistest.Start(t), redistest.Start(t), redistest.Start(t)
	conn := redistest.Dial(t, primary.URL())
	host, port, _ := strings.Cut(primary.Addr(), ":")
	follow := func(s *redistest.Server, then string) {
		t.Helper()
		redistest.Do(t, redistest.Dial(t, s.URL()), "REPLICAOF", host, port)
		eventually(t, "the replica is connected", func() bool { return strings.Contains(info(t, conn, "replication"), then) })
	}
	texts := func(url string) string {
		return sure(openDoctor(t, url, worqr.Options{Prefix: "p"}).Check(t.Context(), nil))(t).String()
	}
	follow(replica, "connected_slaves:1")
	is.True(strings.Contains(texts(replica.URL()), "This Redis is a replica"))
	is.True(strings.Contains(texts(primary.URL()), "add a second replica, and set min-replicas-to-write"))
	redistest.Do(t, conn, "CONFIG", "SET", "min-replicas-to-write", "1")
	is.True(strings.Contains(texts(primary.URL()), "Redis has no more replicas than that"))
	follow(second, "connected_slaves:2")
	is.True(!strings.Contains(texts(primary.URL()), "min-replicas-to-write is"))
	redistest.Do(t, conn, "CONFIG", "SET", "min-replicas-to-write", "0")
	is.True(strings.Contains(texts(primary.URL()), "Set min-replicas-to-write"))
}

// If Check may not read INFO or the settings, it reports that and examines the rest.
func TestCheckForbidden(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	redistest.DoAll(t, conn, [][]any{
		{"ACL", "SETUSER", "narrow", "on", ">secret", "~p:*", "&p_*", "+@all", "-@dangerous", "-@admin"},
		{"LPUSH", "p:process:{q}:p1", "a"},
	})
	p := openAt(t, strings.Replace(server.URL(), "redis://", "redis://narrow:secret@", 1), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	report := sure(p.Check(t.Context(), nil))(t)
	is.True(!intact(report))
	is.Equal(count(report, "not-permitted"), 5) // four sections and the settings
	is.Equal(count(report, "orphan"), 1)
	report = sure(p.Repair(t.Context(), nil))(t)
	is.True(intact(report))
	is.Equal(waiting(t, p.Queue("q")), []string{"a"})
}

// Repair works on a full Redis.
func TestRepairFull(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	redistest.Do(t, conn, "LPUSH", "p:process:{q}:p1", "a")
	redistest.Do(t, conn, "CONFIG", "SET", "maxmemory", "1")
	p := openDoctor(t, server.URL(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	report := sure(p.Repair(t.Context(), nil))(t)
	is.True(intact(report))
	is.Equal(count(report, "full"), 1)
	is.Equal(count(report, "orphan"), 1)
	is.Equal(waiting(t, p.Queue("q")), []string{"a"})
}

// A clock that is far off, ahead or behind, is reported.
func TestCheckClock(t *testing.T) {
	t.Parallel()
	for shift, want := range map[time.Duration]int{0: 0, time.Hour: 1, -time.Hour: 1} {
		is := is.New(t)
		p := openThrough(t, redistest.URL(), worqr.Options{Prefix: redistest.Prefix(t)}, func(c *through) redis.Conn {
			c.OnReply = func(command string, _ []any, reply any, err error) (any, error) {
				if command == "TIME" && err == nil {
					seconds, _ := redis.Int64(reply.([]any)[0], nil)
					reply.([]any)[0] = fmt.Append(nil, seconds+int64(shift.Seconds()))
				}
				return reply, err
			}
			return c
		})
		report := sure(p.Check(t.Context(), nil))(t)
		is.True(intact(report))
		is.Equal(count(report, "clock"), want)
		is.NoErr(p.Close())
	}
}
