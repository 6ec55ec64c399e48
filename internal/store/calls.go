package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// ErrUnknown is the error of a call that was sent and whose reply was lost: it may have been carried
// out.
var ErrUnknown = redisconn.ErrUnknown

// Twice makes a call that may be repeated, and repeats it once if the reply was lost.
func Twice(call func() error) error {
	err := call()
	if errors.Is(err, ErrUnknown) {
		err = call()
	}
	return err
}

// doEach makes one call for each element.
func doEach[T any](ctx context.Context, r Runner, all []T, call func(T) redisconn.Call) []redisconn.Reply {
	calls := make([]redisconn.Call, len(all))
	for i, one := range all {
		calls[i] = call(one)
	}
	return r.Do(ctx, calls...)
}

// readAs converts a reply with as. It sets err to the error, unless err is already set.
func readAs[T any](reply redisconn.Reply, as func(any, error) (T, error), err *error) T {
	v, failed := as(reply.Value, reply.Err)
	*err = cmp.Or(*err, failed)
	return v
}

// failure returns the first error among replies.
func failure(replies []redisconn.Reply) error {
	for _, reply := range replies {
		if reply.Err != nil {
			return reply.Err
		}
	}
	return nil
}

// Now returns the time of a server, in ms.
func Now(ctx context.Context, r Runner) (int64, error) {
	return timeIn(reply(r.One(ctx, redisconn.Command("TIME"))))
}

// NowAt returns the time of the queue's Redis, in ms.
func NowAt(ctx context.Context, r Runner, q keys.Queue) (int64, error) {
	return timeIn(reply(r.One(ctx, timeCall(q))))
}

func timeCall(q keys.Queue) redisconn.Call { return redisconn.Command("TIME").At(q.Waiting()) }

// timeIn returns the time in the reply to TIME, in ms.
func timeIn(reply redisconn.Reply) (int64, error) {
	v, err := redis.Int64s(reply.Value, reply.Err)
	if err != nil || len(v) != 2 {
		return 0, err
	}
	return v[0]*1000 + v[1]/1000, nil
}

// lastMoment is the end of the year 9999, in ms: JSON has no later times.
const lastMoment = 253402300799999

// Moment converts a Redis time in ms. The result is zero if the time isn't known. Another program may
// have written any number.
func Moment(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(ms, lastMoment))
}

// A decoder decodes a reply that is an array, one element after the other. At the first unexpected
// element it sets err; from then on it yields zeros.
type decoder struct {
	rest []any
	err  error
}

var errTooShort = errors.New("the reply is too short")

// read decodes the reply of a script. If the script refused, that is the error of the decoder. A
// reply that is a single value is an array of one.
func read(reply any, err error) *decoder {
	if err != nil {
		return &decoder{err: Refusal(err)}
	}
	if several, ok := reply.([]any); ok {
		return &decoder{rest: several}
	}
	return &decoder{rest: []any{reply}}
}

func (d *decoder) next() any {
	if d.err == nil && len(d.rest) == 0 {
		d.err = errTooShort
	}
	if d.err != nil {
		return nil
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

// as returns a value of a reply as a T. If the type is wrong, it sets err, unless err is already set.
func as[T any](v any, err *error, want string) T {
	t, ok := v.(T)
	if !ok && *err == nil {
		*err = fmt.Errorf("the reply has %T instead of %s", v, want)
	}
	return t
}

func (d *decoder) fail(err error) { d.err = cmp.Or(d.err, err) }

func (d *decoder) int() int64 { return as[int64](d.next(), &d.err, "a number") }

func (d *decoder) bytes() []byte { return as[[]byte](d.next(), &d.err, "a string") }

func (d *decoder) string() string { return string(d.bytes()) }

// list decodes a nested array.
func (d *decoder) list() *decoder {
	rest := as[[]any](d.next(), &d.err, "an array")
	return &decoder{rest: rest, err: d.err}
}

// each calls f until the array is used up.
func (d *decoder) each(f func()) {
	for d.err == nil && len(d.rest) > 0 {
		f()
	}
}

// lists calls f, which decodes from a nested array, until that is used up.
func (d *decoder) lists(f func(in *decoder)) {
	in := d.list()
	in.each(func() { f(in) })
	d.join(in)
}

// strings decodes a nested array of strings.
func (d *decoder) strings() (all []string) {
	d.lists(func(in *decoder) { all = append(all, in.string()) })
	return all
}

// join makes the error of a nested array the decoder's own.
func (d *decoder) join(nested *decoder) { d.fail(nested.err) }

// numberIn parses a number. It returns 0 for other text, and the nearest int64 if it's out of range.
func numberIn(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// countIn is numberIn for what can't be negative.
func countIn(text string) int { return int(min(max(numberIn(text), 0), math.MaxInt32)) }

// Reads returns a Runner for calls that change nothing. It repeats them: once if the reply was
// lost, and for as long as patience if Redis is down. Their errors aren't ErrUnknown, since such a
// call has no effect that could be unknown.
func Reads(by Runner, patience time.Duration) Runner { return &reads{by, patience} }

type reads struct {
	by       Runner
	patience time.Duration
}

func (r *reads) Do(ctx context.Context, calls ...redisconn.Call) (replies []redisconn.Reply) {
	r.repeat(ctx, func() error {
		replies = r.by.Do(ctx, calls...)
		for _, reply := range replies {
			if redisconn.Away(reply.Err) {
				return reply.Err
			}
		}
		return nil
	})
	for i := range replies {
		replies[i].Err = certain(replies[i].Err)
	}
	return replies
}

func (r *reads) One(ctx context.Context, c redisconn.Call) (any, error) {
	one := r.Do(ctx, c)[0]
	return one.Value, one.Err
}

// Owner returns the node of a cluster that has a key; "" if it isn't known.
func (r *reads) Owner(key string) string { return NewAbsence(r.by).home(key) }

func (r *reads) repeat(ctx context.Context, call func() error) {
	began, retry := time.Now(), NewBackoff()
	for again := false; ; again = true {
		err := call()
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !again && errors.Is(err, ErrUnknown):
			continue // on a new connection
		case !redisconn.Away(err) || time.Since(began) >= r.patience:
			return
		}
		select {
		case <-time.After(retry.Next()):
		case <-ctx.Done():
			return
		}
	}
}

// certain converts the error of a call that changes nothing: if its reply was lost, it's the reason for that.
func certain(err error) error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || !errors.Is(err, ErrUnknown) {
		return err
	}
	isCause := func(err error) bool { return !errors.Is(err, ErrUnknown) }
	if i := slices.IndexFunc(several.Unwrap(), isCause); i >= 0 {
		return fmt.Errorf("%v: %w", ErrUnknown, several.Unwrap()[i])
	}
	return errors.New(err.Error())
}
