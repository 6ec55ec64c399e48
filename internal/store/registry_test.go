package store

import (
	"errors"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
)

// If a peer may not read how many parts a queue has, or the key has another type, it uses its own
// number. A temporary failure is an error.
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
