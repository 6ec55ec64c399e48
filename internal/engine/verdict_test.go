package engine

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// What becomes of a task, by the error, its retries and the policy for panics.
func TestOutcome(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	panicked := func(v any) error { return &panicError{value: v} }
	retry := func(d time.Duration) store.Outcome { return store.Outcome{Verb: store.Retry, Delay: d} }
	fail := func(k store.Kind) store.Outcome { return store.Outcome{Verb: store.Fail, Kind: k} }
	for name, c := range map[string]struct {
		err     error
		retries int // of three
		policy  bool
		want    store.Outcome
	}{
		"an error":                     {err: bad, want: retry(time.Minute)},
		"after two retries":            {err: bad, retries: 2, want: retry(3 * time.Minute)},
		"after the last":               {err: bad, retries: 3, want: fail(store.Failed)},
		"permanent":                    {err: Permanent(bad), want: fail(store.Failed)},
		"malformed":                    {err: Malformed(bad), want: fail(store.Malformed)},
		"wrapped":                      {err: fmt.Errorf("so: %w", Malformed(bad)), want: fail(store.Malformed)},
		"later":                        {err: RetryAfter(bad, time.Hour), want: retry(time.Hour)},
		"later, after the last":        {err: RetryAfter(bad, time.Hour), retries: 3, want: fail(store.Failed)},
		"before now":                   {err: RetryAfter(bad, -time.Hour), want: retry(0)},
		"in a million years":           {err: RetryAfter(bad, 1<<62), want: retry(Longest)},
		"the outermost is permanent":   {err: Permanent(RetryAfter(bad, time.Hour)), want: fail(store.Failed)},
		"the outermost is to retry":    {err: RetryAfter(Permanent(bad), time.Hour), want: retry(time.Hour)},
		"a panic":                      {err: panicked("no"), want: retry(time.Minute)},
		"a panic fails":                {err: panicked("no"), policy: true, want: fail(store.Failed)},
		"a panic with an error":        {err: panicked(Malformed(bad)), want: fail(store.Malformed)},
		"a panic with it fails":        {err: panicked(Malformed(bad)), policy: true, want: fail(store.Malformed)},
		"a panic that is to be later":  {err: panicked(RetryAfter(bad, time.Hour)), want: retry(time.Hour)},
		"which fails under the policy": {err: panicked(RetryAfter(bad, time.Hour)), policy: true, want: fail(store.Failed)},
		"Goexit":                       {err: errGoexit, policy: true, want: retry(time.Minute)},
	} {
		o := Options{MaxRetries: 3, FailOnPanic: c.policy}
		got := o.outcome(c.err, c.retries, func(n int) time.Duration { return time.Duration(n) * time.Minute })
		if c.want.Verb == store.Fail {
			c.want.Reason = c.err.Error()
		}
		if got.Verb != c.want.Verb || got.Delay != c.want.Delay || got.Kind != c.want.Kind || got.Reason != c.want.Reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if Permanent(nil) != nil || Malformed(nil) != nil || RetryAfter(nil, 1) != nil {
		t.Error("nil is no error")
	}
}
