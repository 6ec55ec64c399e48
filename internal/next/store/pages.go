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
	perPage = 100 // rows read at a time
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
