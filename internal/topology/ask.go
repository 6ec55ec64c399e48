package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// An inquiry asks the sentinels, once for all concurrent callers.
type inquiry struct {
	done   chan struct{} // closed when it has ended
	answer answer
	err    error
}

var errTardy = errors.New("no time left to ask the sentinels")

// latecomers is how long the other sentinels have once one has answered.
const latecomers = 50 * time.Millisecond

// ask returns the master that the sentinels name. It ignores answers older than the current one: a
// sentinel that is cut off with an old master would lead back to it.
func (s *sentinels) ask(ctx context.Context) (answer, error) {
	s.mu.Lock()
	q := s.asking
	if q == nil {
		q = &inquiry{done: make(chan struct{})}
		s.asking = q
		go s.inquire(q)
	}
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
		return answer{}, &nobodyError{all: []error{fmt.Errorf("%w: %w", errTardy, ctx.Err())}}
	}
}

// inquire asks all sentinels concurrently. While no master is known, it waits for all of them, since there is no
// earlier answer that would expose a sentinel that is cut off.
func (s *sentinels) inquire(q *inquiry) {
	s.mu.Lock()
	all, current := s.allLocked(), s.current
	s.mu.Unlock()
	answers, errs := make([]answer, len(all)), make([]error, len(all))
	ended := make(chan func(), len(all))
	for i, address := range all {
		errs[i] = fmt.Errorf("sentinel %s: %w", address, errTardy)
		go func() {
			a, err := s.askOne(context.Background(), address, true)
			ended <- func() { answers[i], errs[i] = a, err }
		}()
	}
	var late <-chan time.Time
	for n := 0; n < len(all); n++ {
		select {
		case record := <-ended:
			record()
		case <-late:
			n = len(all)
		}
		newer := func(a answer) bool { return a.address != "" && a.epoch >= current.epoch }
		if late == nil && current.address != "" && slices.ContainsFunc(answers, newer) {
			late = time.After(latecomers)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	q.answer, q.err = s.chooseLocked(all, answers, errs)
	s.asking = nil
	close(q.done)
}

// chooseLocked returns the newest answer, unless it's older than the current one. If most sentinels of the URL agree
// on an older master, they were set up again, so it believes them and lowers the current epoch.
func (s *sentinels) chooseLocked(all []string, answers []answer, errs []error) (newest answer, err error) {
	var older []answer
	final := true // they would answer the same again
	for i, a := range answers {
		if errs[i] == nil && a.epoch < s.current.epoch {
			errs[i] = fmt.Errorf("sentinel %s: %w", all[i], errOlder)
			if slices.Contains(s.listed, all[i]) {
				older = append(older, a)
			}
		}
		if errs[i] == nil && (newest.address == "" || a.epoch > newest.epoch) {
			newest = a
		}
		final = final && lasting(errs[i])
	}
	switch {
	case newest.address != "":
		return newest, nil
	case 2*len(older) > len(s.listed) && !slices.ContainsFunc(older, func(a answer) bool { return a.address != older[0].address }):
		s.current.epoch = older[0].epoch
		return older[0], nil
	}
	return answer{}, &nobodyError{errs, final}
}

// lasting reports whether a sentinel would give the same answer again.
func lasting(err error) bool {
	return redisconn.Refused(err) || errors.Is(err, errUnknownName) || errors.Is(err, errNoSentinel)
}

// allLocked returns all sentinels, beginning with the one to believe first.
func (s *sentinels) allLocked() []string {
	all := slices.Concat(s.listed, s.learned)
	at := max(slices.Index(all, s.first), 0)
	return slices.Concat(all[at:], all[:at])
}

// afterLocked returns the sentinel that comes after one.
func (s *sentinels) afterLocked(address string) string {
	all := slices.Concat(s.listed, s.learned)
	return all[(slices.Index(all, address)+1)%len(all)]
}

// askOne asks one sentinel for the master, on a connection that stays open while there are users. If it learns, it also
// asks for other sentinels.
func (s *sentinels) askOne(ctx context.Context, address string, learns bool) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	s.mu.Lock()
	conn := s.kept[address]
	delete(s.kept, address)
	s.mu.Unlock()
	if conn != nil {
		if a, err = s.question(ctx, conn); err != nil {
			_ = conn.Close() // perhaps the sentinel had closed it
			conn = nil
		}
	}
	if conn == nil {
		watcher := s.watcher
		watcher.Address = address
		if conn, err = watcher.Dial(ctx); err != nil {
			return answer{}, fmt.Errorf("sentinel: %w", err)
		}
		a, err = s.question(ctx, conn)
	}
	if err == nil && learns {
		if others, err := redis.Values(redis.DoContext(conn, ctx, "SENTINEL", "SENTINELS", s.name)); err == nil { // otherwise, use those of the URL
			s.learn(address, others)
		}
	}
	s.mu.Lock()
	if err == nil && s.users > 0 && s.kept[address] == nil {
		s.kept[address], conn = conn, nil
	}
	s.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // the next call makes another one
	}
	switch {
	case err == nil:
		a.by = address
		return a, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no reply within %v: %w", s.within, os.ErrDeadlineExceeded)
	}
	return answer{}, fmt.Errorf("sentinel %s: %w", address, err)
}

var (
	errUnknownName = errors.New("it knows no master of that name")
	errNoSentinel  = errors.New("it doesn't know the command SENTINEL, so it isn't a sentinel; the default port of sentinels is 26379")
)

// question asks a sentinel for the master. During a failover, the sentinel's details describe the
// old master, except for the epoch; the address by name is the new master's.
func (s *sentinels) question(ctx context.Context, conn redis.Conn) (a answer, err error) {
	defer context.AfterFunc(ctx, func() { redisconn.Interrupt(conn) })()
	if err := errors.Join(conn.Send("SENTINEL", "MASTER", s.name), conn.Send("SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.name), conn.Flush()); err != nil {
		return a, err
	}
	about, err := redis.StringMap(redis.ReceiveWithTimeout(conn, s.within))
	if err != nil && !redisconn.Answered(err) {
		return a, err
	}
	where, err := redis.Strings(redis.ReceiveWithTimeout(conn, s.within))
	switch {
	case errors.Is(err, redis.ErrNil):
		return a, errUnknownName
	case redisconn.UnknownCommand(err):
		return a, errNoSentinel
	case err != nil:
		return a, redisconn.Discreet(err)
	case len(where) != 2:
		where = []string{"", ""}
	}
	if a.address, err = addressOf(where[0], where[1]); err != nil {
		return a, err
	}
	if a.epoch, err = strconv.ParseInt(about["config-epoch"], 10, 64); err != nil { // the user may lack the permission
		s.mu.Lock()
		a.epoch = s.current.epoch
		s.mu.Unlock()
		return a, nil
	}
	if at, err := addressOf(about["ip"], about["port"]); err == nil && at == a.address {
		a.run = about["runid"]
	}
	return a, nil
}

// learn records the other sentinels that one has named, and forgets those that it no longer names.
func (s *sentinels) learn(by string, others []any) {
	var learned []string
	if !slices.Contains(s.listed, by) {
		learned = append(learned, by)
	}
	for _, other := range others {
		about, err := redis.StringMap(other, nil)
		if err != nil {
			continue
		}
		address, err := addressOf(about["ip"], about["port"])
		if err == nil && !slices.Contains(s.listed, address) && len(learned) < mostLearned {
			learned = append(learned, address)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(others) > 0 { // one that is cut off knows no others
		slices.Sort(learned)
		s.learned = learned
	}
}
