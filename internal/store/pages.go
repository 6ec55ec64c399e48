package store

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
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
