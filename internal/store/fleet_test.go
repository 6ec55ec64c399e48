package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// fleetOf returns a connection, and the keys of a fleet of the test's own.
func fleetOf(t *testing.T) (*redisconn.Line, redis.Conn, Space) {
	t.Helper()
	line := redisconn.NewLine(redistest.Sure(Open(redistest.URL(), Access{}))(t).Dial(), 5*time.Second)
	t.Cleanup(line.Close)
	return line, redistest.Conn(t), keys.NewSpace(redistest.Prefix(t))
}

// faulty is a Runner that changes what another one does.
type faulty struct {
	Runner
	before func(call int) error // its error replaces the call
	calls  int
}

func (f *faulty) Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	f.calls++
	if err := f.before(f.calls); err != nil {
		return slices.Repeat([]redisconn.Reply{{Err: err}}, len(calls))
	}
	return f.Runner.Do(ctx, calls...)
}

func (f *faulty) One(ctx context.Context, c redisconn.Call) (any, error) {
	r := f.Do(ctx, c)[0]
	return r.Value, r.Err
}

// A heartbeat whose connection is cut is repeated once, and then doesn't ask to judge. One that timed out isn't
// repeated, and neither is one whose context has ended.
func TestHeartbeatAgain(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		again bool
	}{
		"cut": {t.Context(), io.EOF, true}, "silent": {t.Context(), os.ErrDeadlineExceeded, false}, "ended": {ended, io.EOF, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			line, _, s := fleetOf(t)
			h := &Heartbeat{Worker: "w", Registers: true, TTL: time.Minute, Lease: time.Second, Queues: []*Shared{SharedOf(s.Queue("q"))}, Judge: []bool{true}}
			r := &faulty{Runner: line, before: func(call int) error {
				if call == 1 {
					return fmt.Errorf("%w: %w", redisconn.ErrUnknown, c.err)
				}
				return nil
			}}
			heard := h.Send(c.ctx, r, s)
			is.Equal(heard.Again, c.again)
			is.Equal(h.Judge[0], !c.again)
			is.Equal(heard.Err == nil, c.again)
			is.Equal(errors.Is(heard.Errs[0], ErrNoMember), c.again) // it's no member
			is.True(!heard.Registered)
		})
	}
}
