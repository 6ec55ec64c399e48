package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

const (
	perPage   = 250     // rows read at a time
	listBytes = 1 << 20 // bytes read at a time; one task may be larger
)

// errReply is the error of a reply that Redis never sends.
var errReply = errors.New("unexpected reply; is this a Redis server?")

// IsWrongType reports whether Redis refused a call because of the type of a key.
func IsWrongType(err error) bool {
	return err != nil && strings.Contains(err.Error(), "WRONGTYPE")
}

// Pages are rows, page by page, and at the end maybe an error. All listings are made of pages, so
// that none holds more than one.
type pages[T any] = iter.Seq2[[]T, error]

// paged returns the pages that next reads, until one is empty or fails. Each use begins anew.
func paged[T any](begin func() (next func() ([]T, error))) pages[T] {
	return func(yield func([]T, error) bool) {
		for next := begin(); ; {
			if page, err := next(); len(page) == 0 && err == nil || !yield(page, err) || err != nil {
				return
			}
		}
	}
}

// rows yields the rows of pages, one by one, and ends at the first error.
func rows[T any](of pages[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for page, err := range of {
			for _, row := range page {
				if !yield(row, nil) {
					return
				}
			}
			if err != nil {
				var none T
				yield(none, err)
			}
		}
	}
}

// each turns the rows of each page into rows of another kind. Those that fetch returns with an error
// come before it.
func each[T, U any](of pages[T], fetch func([]T) ([]U, error)) pages[U] {
	return func(yield func([]U, error) bool) {
		for page, err := range of {
			var made []U
			if err == nil {
				made, err = fetch(page)
			}
			if !yield(made, err) || err != nil {
				return
			}
		}
	}
}

// chain reads the pages of one after those of the other.
func chain[T any](all ...pages[T]) pages[T] {
	return func(yield func([]T, error) bool) {
		for _, of := range all {
			for page, err := range of {
				if !yield(page, err) || err != nil {
					return
				}
			}
		}
	}
}

// sized makes smaller pages: of one row, or of several whose records have at most listBytes together.
// size asks for the length of a row's record.
func sized[T any](ctx context.Context, r Runner, of pages[T], size func(T) redisconn.Call) pages[T] {
	return func(yield func([]T, error) bool) {
		for page, err := range of {
			from, bytes := 0, 0
			for i, reply := range doEach(ctx, r, page, size) {
				n := readAs(reply, redis.Int, &err)
				if bytes += n; bytes > listBytes && i > from {
					if !yield(page[from:i], nil) {
						return
					}
					from, bytes = i, n
				}
			}
			if err != nil {
				page = page[:from]
			}
			if !yield(page[from:], err) || err != nil {
				return
			}
		}
	}
}

// given are the given rows.
func given[T any](all []T) pages[T] {
	return paged(func() func() ([]T, error) {
		left := all
		return func() (page []T, _ error) {
			page = left[:min(perPage, len(left))]
			left = left[len(page):]
			return page, nil
		}
	})
}

// filter leaves out rows.
func filter[T any](of pages[T], keep func(T) bool) pages[T] {
	return each(of, func(some []T) ([]T, error) {
		return slices.DeleteFunc(some, func(row T) bool { return !keep(row) }), nil
	})
}

// members reads the members of a set, or of a sorted set with ZSCAN, in no order. Those that exist
// during the whole scan come once, but may repeat if there are more than a sieve remembers.
func members(ctx context.Context, r Runner, command, key string) pages[string] {
	words := 2 // for each member
	if command == "SSCAN" {
		words = 1
	}
	return func(yield func([]string, error) bool) {
		found := sieve{}
		for cursor := ""; cursor != "0"; {
			reply, err := redis.Values(r.One(ctx, redisconn.Command(command, key, cmp.Or(cursor, "0"), "COUNT", perPage)))
			var all, page []string
			if err == nil {
				_, err = redis.Scan(reply, &cursor, &all)
			}
			for i := 0; i < len(all); i += words {
				if found.passes(all[i]) {
					page = append(page, all[i])
				}
			}
			if !yield(page, err) || err != nil {
				return
			}
		}
	}
}

// A pacer decides how many payloads to ask for if their size isn't known beforehand: more and more
// while they are small.
type pacer struct{ n, largest int }

// next returns how many to ask for.
func (p *pacer) next() int {
	if p.n == 0 {
		p.n = 1
	} else {
		p.n = max(1, min(2*p.n, listBytes/max(p.largest, 1), perPage))
	}
	p.largest = 0
	return p.n
}

// saw records the size of a payload that was read.
func (p *pacer) saw(size int) { p.largest = max(p.largest, size) }

// A sieve lets each name pass once. It remembers a bounded number of them.
type sieve map[string]bool

// sieved is how many names a sieve remembers.
const sieved = 100_000

func (s sieve) passes(name string) bool {
	if s[name] {
		return false
	}
	if len(s) == sieved {
		clear(s)
	}
	s[name] = true
	return true
}

// A ranked is a member of a sorted set.
type ranked struct {
	name  string
	score float64
}

// A ranking reads a sorted set page by page, in its order or in reverse. It remembers the last member
// that it has read, so it yields each member that stays where it is exactly once, whatever is added,
// removed or moved around it. Members with equal scores, such as tasks that are due at the same time,
// may be many more than a page.
type ranking struct {
	by      Runner
	key     string
	reverse bool
	last    *ranked // read last; nil before the first
	equal   int     // members with its score that have been read
}

// errRestless is the error of a set that changes faster than it can be read, or of a server whose
// replies contradict each other.
var errRestless = errors.New("the queue is changing too fast to be listed; try again")

// overlap is how many members that were read before are read again, to find out whether any before the
// unread ones have gone meanwhile.
const overlap = 16

// page reads the next members, a page at most; none at the end.
func (r *ranking) page(ctx context.Context) ([]ranked, error) {
	from := max(0, r.equal-overlap) // counted from the first with the score of the last one
	for back, tries := perPage, 0; tries < 100; tries++ {
		all, err := r.read(ctx, from)
		if err != nil {
			return nil, err
		}
		left := all
		for len(left) > 0 && !r.isUnread(left[0]) {
			left = left[1:]
		}
		switch {
		case from > 0 && len(left) == len(all): // too far: earlier ones may be unread, too
			from, back = max(0, from-back), 4*back
		case len(left) > 0 || len(all) < perPage+overlap:
			return r.reached(left), nil
		default: // others were added before
			from += len(all) - 1
		}
	}
	return nil, errRestless
}

// reached records that the next members have been read, and returns them.
func (r *ranking) reached(left []ranked) []ranked {
	for _, m := range left {
		if r.last == nil || m.score != r.last.score {
			r.equal = 0
		}
		r.last, r.equal = &m, r.equal+1
	}
	return left
}

// isUnread reports whether a member comes after those that were read.
func (r *ranking) isUnread(m ranked) bool {
	if r.last == nil {
		return true
	}
	by := cmp.Or(cmp.Compare(m.score, r.last.score), strings.Compare(m.name, r.last.name))
	return !r.reverse && by > 0 || r.reverse && by < 0
}

// read reads a page of those that have the score of the last one or come after it, without the first ones.
func (r *ranking) read(ctx context.Context, without int) ([]ranked, error) {
	first, last := "-inf", "+inf"
	if r.reverse {
		first, last = last, first
	}
	if r.last != nil {
		first = strconv.FormatFloat(r.last.score, 'f', -1, 64)
	}
	args := []any{r.key, first, last, "BYSCORE", "LIMIT", without, perPage + overlap, "WITHSCORES"}
	if r.reverse {
		args = append(args, "REV")
	}
	return readRanked(reply(r.by.One(ctx, redisconn.Command("ZRANGE", args...))), perPage+overlap)
}

// readRanked reads members with their scores, at most as many.
func readRanked(reply redisconn.Reply, most int) ([]ranked, error) {
	pairs, err := redis.Strings(reply.Value, reply.Err)
	if err == nil && (len(pairs)%2 != 0 || len(pairs) > 2*most) {
		err = errReply
	}
	if err != nil {
		return nil, err
	}
	all := make([]ranked, len(pairs)/2)
	for i := range all {
		score, err := strconv.ParseFloat(pairs[2*i+1], 64)
		if err != nil || math.IsNaN(score) {
			return nil, errReply
		}
		all[i] = ranked{pairs[2*i], score}
	}
	return all, nil
}
