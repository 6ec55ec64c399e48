package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

const (
	perPage   = 100     // rows read at a time
	listBytes = 1 << 20 // bytes read at a time; one task may be larger
)

// errReply is the error of a reply that Redis never sends.
var errReply = errors.New("unexpected reply; is this a Redis server?")

// IsWrongType reports whether Redis refused a call because of the type of a key.
func IsWrongType(err error) bool {
	return err != nil && strings.Contains(err.Error(), "WRONGTYPE")
}

// A pager reads the next page: rows, an error, or neither at the end. It isn't called
// again after the end or an error. All listings are made of pagers, so that none holds
// more than a page.
type pager[T any] func(ctx context.Context) ([]T, error)

// rows yields the rows of the pages, one by one, and ends at the first error. Each use
// starts over.
func rows[T any](ctx context.Context, begin func() pager[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		next := begin()
		for {
			some, err := next(ctx)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range some {
				if !yield(row, nil) {
					return
				}
			}
			if len(some) == 0 {
				return
			}
		}
	}
}

// each turns the rows of each page into rows of another kind. If fetch returns rows with an
// error, they are yielded before it.
func each[T, U any](of pager[T], fetch func(context.Context, []T) ([]U, error)) pager[U] {
	var failed error
	return func(ctx context.Context) ([]U, error) {
		for failed == nil {
			some, err := of(ctx)
			if err != nil || len(some) == 0 {
				return nil, err
			}
			var made []U
			if made, failed = fetch(ctx, some); len(made) > 0 {
				return made, nil
			}
		}
		return nil, failed
	}
}

// filter leaves out rows.
func filter[T any](of pager[T], keep func(T) bool) pager[T] {
	return each(of, func(_ context.Context, some []T) ([]T, error) {
		return slices.DeleteFunc(some, func(row T) bool { return !keep(row) }), nil
	})
}

// chain reads one pager after the other.
func chain[T any](all ...pager[T]) pager[T] {
	return func(ctx context.Context) ([]T, error) {
		for len(all) > 0 {
			if some, err := all[0](ctx); err != nil || len(some) > 0 {
				return some, err
			}
			all = all[1:]
		}
		return nil, nil
	}
}

// ending adds an error after the last row, if last returns one.
func ending[T any](of pager[T], last func() error) pager[T] {
	return func(ctx context.Context) ([]T, error) {
		some, err := of(ctx)
		if err == nil && len(some) == 0 {
			err = last()
		}
		return some, err
	}
}

// within reads, for each row, the rows that belong to it.
func within[T, U any](of pager[T], inner func(T) pager[U]) pager[U] {
	var left []T
	var now pager[U]
	return func(ctx context.Context) ([]U, error) {
		for {
			if now != nil {
				if some, err := now(ctx); err != nil || len(some) > 0 {
					return some, err
				}
			}
			if len(left) == 0 {
				var err error
				if left, err = of(ctx); err != nil || len(left) == 0 {
					return nil, err
				}
			}
			now, left = inner(left[0]), left[1:]
		}
	}
}

// split makes smaller pages: next returns how many rows each may have.
func split[T any](of pager[T], next func() int) pager[T] {
	var left []T
	return func(ctx context.Context) ([]T, error) {
		if len(left) == 0 {
			var err error
			if left, err = of(ctx); err != nil || len(left) == 0 {
				return nil, err
			}
		}
		some := left[:min(next(), len(left))]
		left = left[len(some):]
		return some, nil
	}
}

// sized makes pages of one row, or of several whose payloads have at most listBytes together. A
// row's payload is in the hash that key returns.
func sized[T any](r Runner, of pager[T], key func(T) string) pager[T] {
	var sizes []int // of the rest of the page
	next := func() int {
		n, bytes := 1, sizes[0]
		for n < len(sizes) && bytes+sizes[n] <= listBytes {
			bytes += sizes[n]
			n++
		}
		sizes = sizes[n:]
		return n
	}
	return split(each(of, func(ctx context.Context, page []T) ([]T, error) {
		size := func(row T) redisconn.Call { return redisconn.Command("HSTRLEN", key(row), "payload") }
		sizes = make([]int, len(page))
		for i, reply := range doEach(ctx, r, page, size) {
			var err error
			if sizes[i], err = redis.Int(reply.Value, reply.Err); err != nil {
				return nil, err
			}
		}
		return page, nil
	}), next)
}

// given pages through the given rows.
func given[T any](all []T) pager[T] {
	return func(context.Context) (some []T, _ error) {
		some = all[:min(perPage, len(all))]
		all = all[len(some):]
		return some, nil
	}
}

// byIndex reads a list, front first: from its tail to its head.
func byIndex(r Runner, key string) pager[[]byte] {
	var pace pacer
	read, over := 0, false
	return func(ctx context.Context) ([][]byte, error) {
		if over {
			return nil, nil
		}
		n := pace.next()
		payloads, err := redis.ByteSlices(r.One(ctx, redisconn.Command("LRANGE", key, -read-n, -read-1)))
		if err == nil && len(payloads) > n {
			err = errReply
		}
		if err != nil {
			return nil, err
		}
		for _, p := range payloads {
			pace.saw(len(p))
		}
		slices.Reverse(payloads)
		read, over = read+n, len(payloads) < n
		return payloads, nil
	}
}

// An item is what a command of the SCAN family yields: a member with its score, the field
// of a hash with its value, or a name alone.
type item struct{ name, value string }

// byCursor reads what such a command yields. Each item takes that many words of the reply. Items
// that exist during the whole scan come at least once.
func byCursor(r Runner, words int, call func(cursor string) redisconn.Call) pager[item] {
	cursor, over := "0", false
	return func(ctx context.Context) ([]item, error) {
		for !over {
			reply, err := redis.Values(r.One(ctx, call(cursor)))
			var all []string
			if err == nil {
				_, err = redis.Scan(reply, &cursor, &all)
			}
			if err == nil && len(all)%words != 0 {
				err = errReply
			}
			if err != nil {
				return nil, err
			}
			over = cursor == "0"
			var some []item
			for one := range slices.Chunk(all, words) {
				some = append(some, item{one[0], one[words-1]})
			}
			if len(some) > 0 {
				return some, nil
			}
		}
		return nil, nil
	}
}

// scan reads what SSCAN, HSCAN or ZSCAN yields of a key.
func scan(r Runner, command, key string) pager[item] {
	words := 2
	if command == "SSCAN" {
		words = 1
	}
	return byCursor(r, words, func(cursor string) redisconn.Call { return redisconn.Command(command, key, cursor, "COUNT", perPage) })
}

// members reads the members of a set, each once. If there are more than a sieve
// remembers, one may come twice while the set shrinks.
func members(r Runner, key string) pager[string] {
	found := sieve{}
	return filter(names(scan(r, "SSCAN", key)), found.passes)
}

func names(of pager[item]) pager[string] {
	return each(of, func(_ context.Context, some []item) ([]string, error) {
		all := make([]string, len(some))
		for i, f := range some {
			all[i] = f.name
		}
		return all, nil
	})
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
