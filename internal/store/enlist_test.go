package store

import (
	"slices"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

var _ = probed("enlist",
	probe{call: raw(func(e *env) redisconn.Call {
		return enlist.call(e.q, "names", keys.NewSpace(e.prefix).Registry(), "name", "q")
	})},
)

// A set has each name once. A key of another type isn't changed.
func TestEnlist(t *testing.T) {
	e := beside(t, nil)
	names := keys.NewSpace(e.prefix).Registry()
	adds := func(name string) error {
		_, err := e.line.One(e.ctx, enlist.call(e.q, "names", names, "name", name))
		return err
	}
	for _, name := range []string{"a", "b", "a"} {
		e.is.NoErr(adds(name))
	}
	e.is.Equal(slices.Sorted(slices.Values(sure(redis.Strings(e.conn.Do("SMEMBERS", names)))(t))), []string{"a", "b"})
	e.must(e.conn.Do("SET", names, "foreign"))
	e.is.Equal(refused(Refusal(adds("c"))), "WRONGTYPE")
}
