package verdict

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// TestPolicy checks what happens to a task, depending on the error, its retries and the policy for
// panics.
func TestPolicy(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	panicked := func(v any) error { return &Panic{Value: v} }
	retry := func(d time.Duration) store.End { return store.End{Verb: store.Retry, Delay: d} }
	snooze := func(d time.Duration) store.End { return store.End{Verb: store.Snooze, Delay: d} }
	fail := func(k store.Kind) store.End { return store.End{Verb: store.Fail, Kind: k} }
	for name, c := range map[string]struct {
		err     error
		retries int // of three
		policy  bool
		want    store.End
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
		"the outermost retries":        {err: RetryAfter(Permanent(bad), time.Hour), want: retry(time.Hour)},
		"a snooze":                     {err: Snooze(time.Hour), want: snooze(time.Hour)},
		"a snooze after the last":      {err: Snooze(time.Hour), retries: 3, want: snooze(time.Hour)},
		"a snooze until before now":    {err: Snooze(-time.Hour), want: snooze(0)},
		"a snooze for a million years": {err: Snooze(1 << 62), want: snooze(Longest)},
		"a wrapped snooze":             {err: fmt.Errorf("so: %w", Snooze(time.Hour)), want: snooze(time.Hour)},
		"a permanent snooze":           {err: Permanent(Snooze(time.Hour)), want: fail(store.Failed)},
		"a snooze that is a retry":     {err: RetryAfter(Snooze(time.Hour), time.Minute), want: retry(time.Minute)},
		"a panic with a snooze":        {err: panicked(Snooze(time.Hour)), want: retry(time.Hour)},
		"a panic with it, after all":   {err: panicked(Snooze(time.Hour)), retries: 3, want: fail(store.Failed)},
		"a panic":                      {err: panicked("no"), want: retry(time.Minute)},
		"a panic fails":                {err: panicked("no"), policy: true, want: fail(store.Failed)},
		"a panic with an error":        {err: panicked(Malformed(bad)), want: fail(store.Malformed)},
		"a panic with it fails":        {err: panicked(Malformed(bad)), policy: true, want: fail(store.Malformed)},
		"a panic with RetryAfter":      {err: panicked(RetryAfter(bad, time.Hour)), want: retry(time.Hour)},
		"which fails under the policy": {err: panicked(RetryAfter(bad, time.Hour)), policy: true, want: fail(store.Failed)},
		"Goexit":                       {err: ErrGoexit, policy: true, want: retry(time.Minute)},
	} {
		p := Policy{MaxRetries: 3, FailOnPanic: c.policy}
		got := p.Of(c.err, c.retries, func(err error) time.Duration {
			if err != c.err {
				t.Errorf("%s: the delay is for %v", name, err)
			}
			return time.Duration(c.retries+1) * time.Minute
		})
		if c.want.Verb == store.Fail || c.want.Verb == store.Retry {
			c.want.Reason = c.err.Error()
		}
		if got.Verb != c.want.Verb || got.Delay != c.want.Delay || got.Kind != c.want.Kind || got.Reason != c.want.Reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if !errors.Is(Permanent(fmt.Errorf("so: %w", bad)), bad) || RetryAfter(bad, 0).Error() != "bad" {
		t.Error("a verdict hides its error")
	}
	if Permanent(nil) != nil || Malformed(nil) != nil || RetryAfter(nil, 1) != nil {
		t.Error("nil is no error")
	}
	if o := Final(Snooze(time.Hour)); o.Verb != store.Fail || o.Kind != store.Failed {
		t.Errorf("a task that is to fail for good: %+v", o)
	}
}

// If verdicts are nested, the outermost determines the kind.
func TestIsVerdict(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		err                          error
		permanent, malformed, snooze bool
	}{
		"nil":                    {},
		"an error":               {err: bad},
		"permanent":              {err: Permanent(bad), permanent: true},
		"malformed":              {err: Malformed(bad), permanent: true, malformed: true},
		"to retry":               {err: RetryAfter(bad, 0)},
		"snooze":                 {err: Snooze(0), snooze: true},
		"wrapped":                {err: fmt.Errorf("so: %w", Malformed(bad)), permanent: true, malformed: true},
		"permanent of malformed": {err: Permanent(Malformed(bad)), permanent: true},
		"permanent of snooze":    {err: Permanent(Snooze(0)), permanent: true},
		"to retry of permanent":  {err: RetryAfter(Permanent(bad), 0)},
		"to retry of snooze":     {err: RetryAfter(Snooze(0), 0)},
	} {
		if IsPermanent(c.err) != c.permanent || IsMalformed(c.err) != c.malformed || IsSnooze(c.err) != c.snooze {
			t.Errorf("%s: permanent %t, malformed %t, snooze %t", name, IsPermanent(c.err), IsMalformed(c.err), IsSnooze(c.err))
		}
	}
}

// The text of an error is kept as valid UTF-8, up to a number of bytes.
func TestReason(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"bad":                              "bad",
		"\xff\xfe":                         "�",
		strings.Repeat("x", 9):             "xxxxxxxx",
		"xxxxxxé" + "y":                    "xxxxxxé",
		"xxxxxxxé":                         "xxxxxxx",
		"xxxxxxx\xff":                      "xxxxxxx",
		"\xffx\xffx\xffx\xffx\xff\xff\xff": "�x�x",
	} {
		if got := reason(errors.New(text), 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
