package store

import (
	"cmp"
	"context"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// A ranked is a member of a sorted set.
type ranked struct {
	name  string
	score float64
}

// compare orders members as Redis does.
func (r ranked) compare(to ranked) int {
	return cmp.Or(cmp.Compare(r.score, to.score), strings.Compare(r.name, to.name))
}

// A ranking reads a sorted set page by page, in its order or in reverse. It remembers
// the last member it has read, so it yields each member that stays where it is
// exactly once, whatever is added, removed or moved around it. It continues from the score of that
// member. If more than a page have the same score, it continues by rank. Both take Redis as long at
// the end of the set as at its beginning.
type ranking struct {
	by      Runner
	key     string
	reverse bool
	last    *ranked // read last; nil before the first
	next    int     // rank of the member after it, unless the set has changed; 0 if it isn't known
}

// errRestless is the error of a set that changes faster than it can be read, or of a server whose
// replies contradict each other.
var errRestless = errors.New("the queue is changing too fast to be listed; try again")

// page reads the next members, a page at most.
func (r *ranking) page(ctx context.Context) ([]ranked, error) {
	for range 100 {
		if r.last == nil || r.next > 0 {
			from := max(r.next-1, 0) // a member that was read before, to check whether ranks have changed
			all, err := r.read(ctx, perPage+1, from, from+perPage)
			if err != nil {
				return nil, err
			}
			left := r.unread(all)
			here := from == 0 || len(all) > len(left) // no earlier member is unread
			if here && (len(left) > 0 || len(all) <= perPage) {
				return r.reached(left, from+len(all)), nil
			}
		}
		bounds := []any{bound(r.last), "+inf", "BYSCORE", "LIMIT", 0, perPage + 1}
		if r.reverse {
			bounds[1] = "-inf"
		}
		all, err := r.read(ctx, perPage+1, bounds...)
		if err != nil {
			return nil, err
		}
		if left := r.unread(all); len(left) > 0 || len(all) <= perPage {
			return r.reached(left, 0), nil
		}
		if err := r.seek(ctx); err != nil { // all of them have the same score
			return nil, err
		}
	}
	return nil, errRestless
}

func bound(m *ranked) string {
	if m == nil {
		return "-inf"
	}
	return strconv.FormatFloat(m.score, 'f', -1, 64)
}

// reached records that the next members, a page at most, have been read, and returns them.
func (r *ranking) reached(left []ranked, next int) []ranked {
	if len(left) > perPage {
		left, next = left[:perPage], next-len(left)+perPage
	}
	if len(left) > 0 {
		last := left[len(left)-1]
		r.last = &last
	}
	r.next = 0
	if len(left) > 0 && left[0].score == r.last.score {
		r.next = max(next, 0)
	}
	return left
}

// unread returns the members of a page that weren't read before.
func (r *ranking) unread(all []ranked) []ranked {
	for i := range all {
		if r.behind(all[i]) {
			return all[i:]
		}
	}
	return nil
}

// behind reports whether a member comes after those that were read.
func (r *ranking) behind(m ranked) bool {
	if r.last == nil {
		return true
	}
	by := m.compare(*r.last)
	return !r.reverse && by > 0 || r.reverse && by < 0
}

// seek finds the rank of the first unread member, or one a little
// before it. Most sets have changed by less than two pages.
func (r *ranking) seek(ctx context.Context) error {
	low := 0
	high, err := redis.Int(r.by.One(ctx, redisconn.Command("ZCARD", r.key)))
	if err != nil {
		return err
	}
	near := []int{r.next - 2*perPage, r.next + 2*perPage}
	for high-low > perPage/2 {
		i := low + (high-low)/2
		if len(near) > 0 {
			i, near = near[0], near[1:]
			if i < low || i >= high {
				continue
			}
		}
		all, err := r.read(ctx, 1, i, i)
		switch {
		case err != nil:
			return err
		case len(all) == 0 || r.behind(all[0]):
			high = i
		default:
			low = i + 1
		}
	}
	r.next = max(low, 1)
	return nil
}

// read reads up to most members.
func (r *ranking) read(ctx context.Context, most int, bounds ...any) ([]ranked, error) {
	args := append([]any{r.key}, bounds...)
	if r.reverse {
		args = append(args, "REV")
	}
	pairs, err := redis.Strings(r.by.One(ctx, redisconn.Command("ZRANGE", append(args, "WITHSCORES")...)))
	if err != nil {
		return nil, err
	}
	if len(pairs)%2 != 0 || len(pairs) > 2*most {
		return nil, errReply
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
