package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("agree",
	probe{call: raw(func(e *env) redisconn.Call { return agree.call(e.q, "newest", 2, "oldest", 1) })},
)

// The fleet's protocol number only rises, and garbage is replaced.
func TestAgree(t *testing.T) {
	t.Parallel()
	for there, want := range map[string]string{
		"": "3:1", "0:0": "3:1", "3:1": "3:1", "2:0": "3:1", "4:0": "4:1", "2:2": "3:2", "5:4": "5:4",
		"12:9": "12:9", "1000:0": "1000:1", "9999:9999": "9999:9999",
		"10000:0": "3:1", "9999:10000": "3:1", "4": "3:1", "4:": "3:1", ":4": "3:1", "4:2:": "3:1", "4:2 ": "3:1", " 4:2": "3:1", "-4:2": "3:1", "4.5:2": "3:1",
		"9999:9999" + strings.Repeat("9", 1000): "3:1", "x": "3:1",
	} {
		t.Run(fmt.Sprintf("%.20q", there), func(t *testing.T) {
			e := beside(t, nil)
			key := keys.NewSpace(e.prefix).Protocol()
			if there != "" {
				e.must(e.conn.Do("SET", key, there))
			}
			for range 2 {
				e.is.Equal(sure(redis.String(e.line.One(e.ctx, agree.call(e.q, "newest", 3, "oldest", 1))))(t), want)
				e.is.Equal(sure(redis.String(e.conn.Do("GET", key)))(t), want)
			}
		})
	}
}

// TestProtocols checks which protocols can't coexist, in both directions, and what stays in Redis.
func TestProtocols(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		there   string
		workers []int // the protocols of those on the roster
		ours    Protocol
		refused string
		left    string
	}{
		"first of all":                {"", nil, Protocol{1, 0}, "", "1:0"},
		"beside unnumbered ones":      {"", []int{0, 0}, Protocol{1, 0}, "", "1:0"},
		"not beside unnumbered ones":  {"", []int{1, 0}, Protocol{2, 1}, "speaks protocol 0, and this program works with 1 or later", ""},
		"the same":                    {"1:0", []int{1}, Protocol{1, 0}, "", "1:0"},
		"older beside newer":          {"2:0", []int{2}, Protocol{1, 0}, "", "2:0"},
		"newer beside older":          {"1:0", []int{1}, Protocol{2, 0}, "", "2:0"},
		"too old":                     {"3:2", nil, Protocol{1, 0}, "they speak protocol 3 and need every peer to speak 2 or later, but this program speaks 1; upgrade this program", "3:2"},
		"too new":                     {"1:0", nil, Protocol{3, 2}, "they speak protocol 1, and this program works with 2 or later; first upgrade all of them to a version that speaks 2", "1:0"},
		"all of them are upgraded":    {"3:1", []int{3, 2}, Protocol{3, 2}, "", "3:2"},
		"one of them is not upgraded": {"3:1", []int{3, 1, 3}, Protocol{3, 2}, "speaks protocol 1, and this program works with 2", "3:1"},
		"garbage":                     {"who knows", nil, Protocol{1, 0}, "", "1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			e := beside(t, nil)
			s := keys.NewSpace(e.prefix)
			if c.there != "" {
				e.must(e.conn.Do("SET", s.Protocol(), c.there))
			}
			for i, spoken := range c.workers {
				e.is.NoErr(Register(e.ctx, e.line, s, fmt.Sprint("w", i), time.Hour, Registration{Name: "n", Protocol: spoken}))
			}
			for range 2 {
				err := Agree(e.ctx, e.line, s, c.ours)
				e.is.Equal(errors.Is(err, ErrProtocol), c.refused != "")
				if c.refused != "" {
					e.is.True(strings.Contains(err.Error(), c.refused))
				} else {
					e.is.NoErr(err)
				}
			}
			left, err := redis.String(e.conn.Do("GET", s.Protocol()))
			e.is.True(err == nil || errors.Is(err, redis.ErrNil))
			e.is.Equal(left, c.left)
		})
	}
}

// A key of another type is refused, and left unchanged.
func TestAgreeForeign(t *testing.T) {
	e := beside(t, nil)
	key := keys.NewSpace(e.prefix).Protocol()
	e.must(e.conn.Do("LPUSH", key, "foreign"))
	e.is.Equal(refused(Agree(e.ctx, e.line, keys.NewSpace(e.prefix), Ours)), "WRONGTYPE")
	_, err := e.line.One(e.ctx, agree.call(e.q, "newest", 3, "oldest", 1))
	e.is.Equal(refused(err), "WRONGTYPE")
	e.is.Equal(sure(redis.Int(e.conn.Do("LLEN", key)))(t), 1)
}
