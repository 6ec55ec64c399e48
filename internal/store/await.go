package store

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// recordStays is the shortest time for which the record of a cancel stays after the cancel has
// ended: a minute, less clock drift and round trips.
const recordStays = 45 * time.Second

// ErrForgotten says that Redis has lost the keys that show when a cancel has ended.
var ErrForgotten = errors.New("the record of this cancel is gone from Redis, so it's unknown which tasks are still running")

// stoppingName is the prefix of this cancel's members in stopping.
func (c Receipt) stoppingName() string {
	if isDigest(c.Name) {
		return "p" + c.Name
	}
	sum := sha1.Sum([]byte(c.Name))
	return "k" + hex.EncodeToString(sum[:])
}

// runs returns the call for a page of the running tasks that the cancel covers, from a
// boundary of ZRANGEBYLEX on; "" is the first.
func (c Receipt) runs(q keys.Queue, from string, limit int) redisconn.Call {
	name := c.stoppingName()
	if from == "" {
		from = "[" + name + ":"
	}
	return redisconn.Command("ZRANGEBYLEX", q.Stopping(), from, fmt.Sprintf("(%s:%016d", name, c.Token+1), "LIMIT", 0, limit)
}

// IsOver reports whether every task that the cancel covers has ended, and how many ended in
// which way: none if the record is gone. It fails with ErrForgotten when Redis has
// gone back to a time before the cancel, or has lost the record.
func (c *Receipt) IsOver(ctx context.Context, r Runner, q keys.Queue) (bool, Tally, error) {
	// The order matters: a worker that has reported what it holds adds nothing later. The task that
	// runs under a key is known from the beginning. Ended tasks have been counted.
	replies := inOrder(ctx, r, q.Scattered(),
		[]redisconn.Call{redisconn.Command("ZCOUNT", q.Holders(), "-inf", "("+strconv.FormatInt(c.Token, 10))},
		[]redisconn.Call{c.runs(q, "", 1)},
		[]redisconn.Call{redisconn.Command("HMGET", q.Cancel(c.Name), "token", "stopped", "finished"), TokenCall(q)})
	var err error
	silent, runs := readAs(replies[0], redis.Int, &err), readAs(replies[1], redis.Values, &err)
	fields := readAs(replies[2], redis.Strings, &err)
	switch {
	case err != nil:
		return false, Tally{}, err
	case len(fields) != 3:
		return false, Tally{}, fmt.Errorf("the record of a cancel has %d fields instead of 3", len(fields))
	}
	last, err := ReadToken(replies[3])
	if err != nil {
		return false, Tally{}, err
	}
	if recorded, err := strconv.ParseInt(fields[0], 10, 64); last < c.Token || err == nil && recorded < c.Token {
		return false, Tally{}, ErrForgotten // both numbers only rise
	}
	over := len(runs) == 0 && (silent == 0 || !isDigest(c.Name))
	switch now := time.Now(); {
	case fields[0] != "":
		c.seen = now
	case over && (c.lost || now.Sub(c.seen) < recordStays):
		c.lost = true
		return false, Tally{}, ErrForgotten // a high token proves nothing: tasks have started since
	default:
		return over, Tally{}, nil
	}
	stopped, _ := strconv.Atoi(fields[1]) // 0 if another program wrote something else
	finished, _ := strconv.Atoi(fields[2])
	return over, Tally{max(stopped-c.Tally.Stopped, 0), max(finished-c.Tally.Finished, 0)}, nil
}

// awaited is how much a cancel still waits for.
type awaited int

const (
	nothing  awaited = iota // the cancel has ended in the meantime
	lost                    // only processes and workers that will never report
	somebody                // a worker that may still report the end
)

// IsForgotten reports whether the cancel waits only for reports that will never come, because Redis
// has lost other keys: processes without their list, workers that aren't members, and workers that
// never receive the cancel because the log has lost it. It reads a page of each at a time.
func (c Receipt) IsForgotten(ctx context.Context, r Runner, q keys.Queue) (bool, error) {
	stopping, err := c.awaitsProcesses(ctx, r, q)
	if err != nil || stopping == somebody || !isDigest(c.Name) {
		return stopping == lost, err
	}
	silent, err := c.awaitsWorkers(ctx, r, q)
	return silent != somebody && max(stopping, silent) == lost, err
}

const lookPage = 100 // what IsForgotten reads in one exchange

// awaitsProcesses checks the lists of the processes. One step removes both a process and its mark
// in stopping, so a mark that still exists after its list was gone is stale.
func (c Receipt) awaitsProcesses(ctx context.Context, r Runner, q keys.Queue) (of awaited, err error) {
	for from := ""; ; {
		marks, err := redis.Strings(r.One(ctx, c.runs(q, from, lookPage)))
		if err != nil || len(marks) == 0 {
			return of, err
		}
		lists, scores := make([]redisconn.Call, len(marks)), make([]redisconn.Call, len(marks))
		for i, m := range marks {
			id := m[min(len(m), len(c.stoppingName())+len(":0000000000000000:")):]
			lists[i] = redisconn.Command("EXISTS", q.Process(id))
			scores[i] = redisconn.Command("ZSCORE", q.Stopping(), m)
		}
		replies := inOrder(ctx, r, q.Scattered(), lists, scores)
		for i := range marks {
			there, err := redis.Bool(replies[i].Value, replies[i].Err)
			if err != nil {
				return of, err
			}
			if there {
				return somebody, nil
			}
			if _, marked, err := readScore(replies[len(marks)+i]); err != nil {
				return of, err
			} else if marked {
				of = lost
			}
		}
		from = "(" + marks[len(marks)-1]
	}
}

// awaitsWorkers checks the workers that haven't reported which of their tasks the cancel covers.
func (c Receipt) awaitsWorkers(ctx context.Context, r Runner, q keys.Queue) (of awaited, err error) {
	for one, err := range rows(ctx, func() pager[item] { return scan(r, "ZSCAN", q.Holders()) }) {
		if err != nil {
			return of, err
		}
		if said, err := strconv.ParseFloat(one.value, 64); err != nil || said >= float64(c.Token) {
			continue
		}
		awaits, err := c.awaitsWorker(ctx, r, q, one.name)
		if err != nil || awaits == somebody {
			return awaits, err
		}
		of = max(of, awaits)
	}
	return of, nil
}

// awaitsWorker checks one of them. The order matters: the tasks of a worker that isn't a member
// anymore are being returned, and a worker with nothing left to return is no longer a holder.
func (c Receipt) awaitsWorker(ctx context.Context, r Runner, q keys.Queue, worker string) (awaited, error) {
	replies := inOrder(ctx, r, q.Scattered(),
		[]redisconn.Call{redisconn.Command("ZSCORE", q.Workers(), worker)},
		[]redisconn.Call{redisconn.Command("ZSCORE", q.Suspects(), worker), redisconn.Command("ZSCORE", q.Canceled(), c.Name)},
		[]redisconn.Call{redisconn.Command("ZSCORE", q.Holders(), worker)})
	var scores [4]float64
	var there [4]bool
	for i, reply := range replies {
		var err error
		if scores[i], there[i], err = readScore(reply); err != nil {
			return nothing, err
		}
	}
	member, returning, logged := there[0], there[1] && scores[1] <= 0, there[2] && scores[2] >= float64(c.Token)
	switch {
	case !there[3] || scores[3] >= float64(c.Token):
		return nothing, nil
	case returning || member && logged:
		return somebody, nil
	}
	return lost, nil
}

// readScore reads the reply to ZSCORE; there reports whether the member exists.
func readScore(reply redisconn.Reply) (score float64, there bool, err error) {
	score, err = redis.Float64(reply.Value, reply.Err)
	if errors.Is(err, redis.ErrNil) {
		return 0, false, nil
	}
	return score, err == nil, err
}
