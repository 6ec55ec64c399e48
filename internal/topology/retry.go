package topology

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

// longPause is the longest pause between retries of a call that the single server has postponed,
// since many callers may wait at the same time.
const longPause = 400 * time.Millisecond

// Patient makes the router retry calls that the single server has postponed, as when it briefly
// lacks replicas after a failover. It returns the router.
func (r *Router) Patient() *Router {
	r.patient = true
	return r
}

// isPutOff reports whether the single server has refused a call that it, or its replacement, will
// accept later. Without sentinels, only missing replicas count, since the server's role doesn't
// change.
func (r *Router) isPutOff(err error) bool {
	if err == nil || !r.patient {
		return false
	}
	why := redisconn.Postponed(err)
	return why == redisconn.Alone || why != "" && r.watched
}

// retry retries the calls that the single server has postponed, for the timeout of a call. A write
// may then be carried out after reads that were sent behind it.
func (r *Router) retry(ctx context.Context, calls []redisconn.Call, replies []redisconn.Reply) []redisconn.Reply {
	var until time.Time
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		var off []int // indexes
		var some []redisconn.Call
		for i := range replies {
			if r.isPutOff(replies[i].Err) && !overtaken(replies[i:]) {
				off, some = append(off, i), append(some, calls[i])
			}
		}
		if len(off) == 0 {
			return replies
		}
		if until.IsZero() {
			until = time.Now().Add(r.timeout)
		}
		left := time.Until(until)
		if left <= 0 {
			return replies
		}
		var over error
		select {
		case <-ctx.Done():
			over = context.Cause(ctx)
		case <-r.life.Done():
			over = redisconn.ErrClosed
		case <-time.After(min(redisconn.Jitter(pause), left)):
		}
		var again []redisconn.Reply
		if over == nil {
			again = r.one.Do(ctx, some...)
		}
		for n, i := range off {
			why := replies[i].Err
			if over != nil {
				replies[i].Err = after(over, why)
				continue
			}
			replies[i] = again[n]
			if err := again[n].Err; err != nil && !redisconn.Answered(err) && !errors.Is(err, redisconn.ErrUnknown) {
				replies[i].Err = after(err, why)
			}
		}
	}
}

// overtaken reports whether the first of some replies is a refusal of the kind that applies to all
// calls, although the server has answered a later one. Then the call isn't repeated: the meaning of
// the other answer may depend on their order.
func overtaken(replies []redisconn.Reply) bool {
	switch redisconn.Postponed(replies[0].Err) {
	case "LOADING", "MASTERDOWN":
		return slices.ContainsFunc(replies[1:], func(reply redisconn.Reply) bool { return reply.Err == nil })
	}
	return false
}

// after returns the error of a call that wasn't carried out: what ended it, and why the last server
// had postponed it.
func after(over, why error) error {
	if why == nil {
		return over
	}
	return fmt.Errorf("%w; the last answer was: %s", over, why)
}
