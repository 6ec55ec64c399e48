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
	from, err := r.rank(ctx)
	for back, tries := perPage, 0; err == nil && tries < 100; tries++ {
		var all, left []ranked
		if all, err = r.read(ctx, from); err != nil {
			break
		}
		for left = all; len(left) > 0 && !r.isUnread(left[0]); {
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
	return nil, cmp.Or(err, errRestless)
}

// rank returns where the unread members begin, or a little before it.
func (r *ranking) rank(ctx context.Context) (int, error) {
	if r.last == nil {
		return 0, nil
	}
	bound := "(" + strconv.FormatFloat(r.last.score, 'f', -1, 64)
	call := redisconn.Command("ZCOUNT", r.key, "-inf", bound)
	if r.reverse {
		call = redisconn.Command("ZCOUNT", r.key, bound, "+inf")
	}
	before, err := redis.Int(r.by.One(ctx, call))
	return max(0, before+r.equal-overlap), err
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

// read reads a page from a rank on.
func (r *ranking) read(ctx context.Context, from int) ([]ranked, error) {
	args := []any{r.key, from, from + perPage + overlap - 1, "WITHSCORES"}
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
