package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// A flaky is a Runner that returns these errors in turn, and then answers.
type flaky struct {
	errs  []error
	calls int
	end   context.CancelFunc
}

func (f *flaky) One(context.Context, redisconn.Call) (any, error) {
	f.calls++
	if f.end != nil {
		f.end()
	}
	if f.calls <= len(f.errs) {
		return nil, f.errs[f.calls-1]
	}
	return int64(7), nil
}

func (f *flaky) Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	v, err := f.One(ctx, calls[0])
	return []redisconn.Reply{{Value: int64(7)}, {Value: v, Err: err}}
}

// A call that changes nothing is repeated if its reply was lost. It fails with the cause of the loss,
// never with an unknown outcome.
func TestReads(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("%w: %w", ErrUnknown, io.EOF)
	for name, c := range map[string]struct {
		errs     []error
		patience time.Duration
		ends     bool // the context ends with the first call
		calls    int
		want     error
	}{
		"answered":               {calls: 1},
		"lost":                   {errs: []error{lost}, calls: 2},
		"lost twice":             {errs: []error{lost, lost}, calls: 2, want: io.EOF},
		"lost often":             {errs: []error{lost, lost, lost}, patience: time.Minute, calls: 4},
		"away":                   {errs: []error{io.EOF}, calls: 1, want: io.EOF},
		"lost, then away":        {errs: []error{lost, io.ErrUnexpectedEOF}, calls: 2, want: io.ErrUnexpectedEOF},
		"away for a while":       {errs: []error{lost, io.EOF, redis.Error("LOADING")}, patience: time.Minute, calls: 4},
		"away for too long":      {errs: []error{lost, io.EOF, lost}, patience: time.Nanosecond, calls: 2, want: io.EOF},
		"refused":                {errs: []error{redis.Error("WRONGTYPE")}, patience: time.Minute, calls: 1, want: redis.Error("WRONGTYPE")},
		"closed":                 {errs: []error{ErrClosed}, patience: time.Minute, calls: 1, want: ErrClosed},
		"the context has ended":  {errs: []error{lost}, patience: time.Minute, ends: true, calls: 1, want: io.EOF},
		"it has ended meanwhile": {errs: []error{io.EOF}, patience: time.Minute, ends: true, calls: 1, want: io.EOF},
	} {
		for how, call := range map[string]func(ctx context.Context, r Runner) (any, error){
			"one": func(ctx context.Context, r Runner) (any, error) { return r.One(ctx, redisconn.Command("PING")) },
			"together": func(ctx context.Context, r Runner) (any, error) {
				a := r.Do(ctx, redisconn.Command("PING"))[1]
				return a.Value, a.Err
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				ctx, end := context.WithCancel(t.Context())
				defer end()
				f := &flaky{errs: c.errs}
				if c.ends {
					f.end = end
				}
				v, err := call(ctx, Reads(f, c.patience))
				if !errors.Is(err, c.want) || errors.Is(err, ErrUnknown) || f.calls != c.calls || err == nil && v != int64(7) {
					t.Errorf("%v, %v after %d calls", v, err, f.calls)
				}
			})
		}
	}
}
