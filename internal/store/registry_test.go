package store

import (
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
)

// A peer can't know over how many parts others have spread a queue if it may not read the number, or
// if its key has another type. Then the peer uses its own number. A temporary failure is an error.
func TestSpreadUntold(t *testing.T) {
	is := is.New(t)
	away := errors.New("connection refused")
	for _, c := range []struct{ err, want error }{
		{redis.Error("NOPERM User w has no permissions to run the 'hget' command"), nil},
		{redis.Error("WRONGTYPE Operation against a key holding the wrong kind of value"), nil},
		{away, away},
	} {
		for _, serves := range []bool{false, true} {
			n, err := Spread(t.Context(), failing(c.err), keys.NewSpace("w"), "q", 7, serves)
			is.Equal(err, c.want)
			is.True(err != nil || n == 7)
		}
		n, err := SpreadOver(t.Context(), failing(c.err), keys.NewSpace("w"), "q")
		is.Equal(err, c.want)
		is.Equal(n, 0)
	}
}
