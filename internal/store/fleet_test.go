package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// A failing runner loses all replies, and notes what it was to do.
type failing struct {
	err  error
	told [][]redisconn.Call
}

func (f *failing) Do(_ context.Context, calls ...redisconn.Call) []redisconn.Reply {
	f.told = append(f.told, append([]redisconn.Call(nil), calls...))
	replies := make([]redisconn.Reply, len(calls))
	for i := range replies {
		replies[i].Err = fmt.Errorf("%w: %w", ErrUnknown, f.err)
	}
	return replies
}

func (f *failing) One(context.Context, redisconn.Call) (any, error) { return nil, f.err }

// A beat whose connection is cut is repeated once, and then judges nobody. One that waits for
// Redis in vain isn't, nor is one that is to end.
func TestBeatAgain(t *testing.T) {
	is := redistest.Parallel(t)
	s := SpaceOf("p")
	b := Beat{Worker: "w", Registers: true, TTL: time.Minute, Lease: time.Second, Grace: time.Second, Judge: 7, Queues: []Keys{s.Queue("q")}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx   context.Context
		err   error
		again bool
	}{
		"cut": {t.Context(), io.EOF, true}, "silent": {t.Context(), os.ErrDeadlineExceeded, false}, "ended": {ended, io.EOF, false},
	} {
		r := &failing{err: test.err}
		of := b.Beat(test.ctx, r, s)
		if of.Again != test.again || (len(r.told) == 2) != test.again || of.Err == nil {
			t.Errorf("%s: %d times, %+v", name, len(r.told), of)
		}
		is.True(reflect.DeepEqual(r.told[0][1], BeatCall(b.Queues[0], "w", b.Lease, b.Grace, 7)))
		if test.again {
			is.True(reflect.DeepEqual(r.told[1][0], r.told[0][0]))
			is.True(reflect.DeepEqual(r.told[1][1], BeatCall(b.Queues[0], "w", b.Lease, b.Grace, 0)))
		}
	}
}
