package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// failing returns a Runner that loses all replies.
func failing(err error) fake {
	return func(calls []redisconn.Call) []redisconn.Reply {
		return slices.Repeat([]redisconn.Reply{{Err: err}}, len(calls))
	}
}

// A beat whose connection is cut is repeated once, and then evicts no worker. A beat that timed out
// isn't repeated, and neither is one whose context has ended.
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
		var told [][]redisconn.Call
		of := b.Beat(test.ctx, fake(func(calls []redisconn.Call) []redisconn.Reply {
			told = append(told, calls)
			return failing(fmt.Errorf("%w: %w", ErrUnknown, test.err))(calls)
		}), s)
		if of.Again != test.again || (len(told) == 2) != test.again || of.Err == nil {
			t.Errorf("%s: %d times, %+v", name, len(told), of)
		}
		is.True(reflect.DeepEqual(told[0][1], BeatCall(b.Queues[0], "w", b.Lease, b.Grace, 7)))
		if test.again {
			is.True(reflect.DeepEqual(told[1][0], told[0][0]))
			is.True(reflect.DeepEqual(told[1][1], BeatCall(b.Queues[0], "w", b.Lease, b.Grace, 0)))
		}
	}
}
