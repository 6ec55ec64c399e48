package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

var errPage = errors.New("this page cannot be read")

// paged pages through numbers. At the end it fails if fails is true.
func paged(fails bool, all ...[]int) pager[int] {
	return func(context.Context) ([]int, error) {
		if len(all) == 0 {
			if fails {
				return nil, errPage
			}
			return nil, nil
		}
		some := all[0]
		all = all[1:]
		return some, nil
	}
}

// read returns all rows of a pager, and the sizes of its pages.
func read[T any](p pager[T]) (all []T, sizes []int, err error) {
	for {
		some, err := p(context.Background())
		if err != nil || len(some) == 0 {
			return all, sizes, err
		}
		all, sizes = append(all, some...), append(sizes, len(some))
	}
}

// Combined pagers lose no row and repeat none. An error comes after the rows before it.
func TestPagers(t *testing.T) {
	t.Parallel()
	odd := func(n int) bool { return n%2 == 1 }
	upTo := func(n int) pager[int] { return paged(false, slices.Repeat([]int{n}, n)) }
	double := func(_ context.Context, some []int) ([]int, error) { return append(some, some...), nil }
	broken := func(_ context.Context, some []int) ([]int, error) { return some[:1], errPage }
	for name, test := range map[string]struct {
		pager pager[int]
		want  []int
		sizes []int
		err   error
	}{
		"nothing":             {pager: paged(false)},
		"two pages":           {pager: paged(false, []int{1, 2}, []int{3}), want: []int{1, 2, 3}, sizes: []int{2, 1}},
		"an error":            {pager: paged(true, []int{1}), want: []int{1}, sizes: []int{1}, err: errPage},
		"some are left out":   {pager: filter(paged(false, []int{1, 2}, []int{2, 4}, []int{3}), odd), want: []int{1, 3}, sizes: []int{1, 1}},
		"all are left out":    {pager: filter(paged(true, []int{2}, []int{4}), odd), err: errPage},
		"one after the other": {pager: chain(paged(false, []int{1}), paged(false), paged(false, []int{2})), want: []int{1, 2}, sizes: []int{1, 1}},
		"the first fails":     {pager: chain(paged(true, []int{1}), paged(false, []int{2})), want: []int{1}, sizes: []int{1}, err: errPage},
		"of each":             {pager: within(paged(false, []int{2, 0}, []int{1}), upTo), want: []int{2, 2, 1}, sizes: []int{2, 1}},
		"of each, then fails": {pager: within(paged(true, []int{1}), upTo), want: []int{1}, sizes: []int{1}, err: errPage},
		"made of pages":       {pager: each(paged(false, []int{1}, []int{2}), double), want: []int{1, 1, 2, 2}, sizes: []int{2, 2}},
		"half of it made":     {pager: each(paged(false, []int{1, 2}, []int{3}), broken), want: []int{1}, sizes: []int{1}, err: errPage},
		"smaller pages":       {pager: split(paged(false, []int{1, 2, 3}, []int{4}), func() int { return 2 }), want: []int{1, 2, 3, 4}, sizes: []int{2, 1, 1}},
		"what is there":       {pager: given(make([]int, perPage+1)), want: make([]int, perPage+1), sizes: []int{perPage, 1}},
	} {
		all, sizes, err := read(test.pager)
		if !slices.Equal(all, test.want) || !slices.Equal(sizes, test.sizes) || err != test.err {
			t.Errorf("%s: %v in pages of %v, and %v", name, all, sizes, err)
		}
	}
}

// Ranging over rows twice reads them twice, and no further than the loop goes.
func TestRows(t *testing.T) {
	is := redistest.Parallel(t)
	reads := 0
	numbers := rows(t.Context(), func() pager[int] {
		next := paged(true, []int{1, 2}, []int{3})
		return func(ctx context.Context) ([]int, error) { reads++; return next(ctx) }
	})
	for range 2 {
		reads = 0
		got := ""
		for n, err := range numbers {
			got += fmt.Sprint(n, err == errPage, " ")
		}
		is.Equal(got, "1 false 2 false 3 false 0 true ")
		is.Equal(reads, 3)
	}
	reads = 0
	for range numbers {
		break
	}
	is.Equal(reads, 1)
}

// canned returns a fake that gives these replies in order.
func canned(all ...redisconn.Reply) fake {
	return func(calls []redisconn.Call) []redisconn.Reply {
		some := all[:len(calls)]
		all = all[len(calls):]
		return some
	}
}

// The payloads of a page have at most listBytes together, unless there is only one.
func TestSized(t *testing.T) {
	is := redistest.Parallel(t)
	const mib = int64(listBytes)
	sizes := []int64{mib / 2, mib / 2, 1, 5 * mib, 0, 0, mib}
	replies := series(len(sizes), func(i int) redisconn.Reply { return redisconn.Reply{Value: sizes[i]} })
	key := func(n int) string { return fmt.Sprint(n) }
	all, pages, err := read(sized(canned(replies...), paged(false, []int{1, 2, 3, 4, 5}, []int{6, 7}), key))
	is.NoErr(err)
	is.Equal(all, []int{1, 2, 3, 4, 5, 6, 7})
	is.Equal(pages, []int{2, 1, 1, 1, 2})
	_, _, err = read(sized(canned(redisconn.Reply{Value: int64(1)}, redisconn.Reply{Err: errPage}), paged(false, []int{1, 2}), key))
	is.Equal(err, errPage)
}

// A name passes once, as long as the sieve remembers it. The sieve's memory is bounded.
func TestSieve(t *testing.T) {
	is := redistest.Parallel(t)
	s := sieve{}
	is.True(s.passes("a"))
	is.True(!s.passes("a"))
	for i := range sieved {
		s.passes(fmt.Sprint(i))
	}
	is.True(len(s) <= sieved)
}
