package topology

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// An inquiry asks the sentinels in turn, once for all concurrent callers.
type inquiry struct {
	done   chan struct{} // closed when it has ended
	cancel context.CancelFunc
	answer answer
	err    error

	// The fields below are protected by sentinels.mu.
	waiting int     // number of waiting callers
	said    []error // from the sentinels asked so far
}

var errTardy = errors.New("no time left to ask the other sentinels")

// ask returns the master that the sentinels name. It ignores answers older than the current one: a
// sentinel that is cut off with an old master would lead back to it.
func (s *sentinels) ask(ctx context.Context) (answer, error) {
	s.mu.Lock()
	q := s.asking
	if q == nil {
		inquiring, cancel := context.WithCancel(context.Background())
		q = &inquiry{done: make(chan struct{}), cancel: cancel, err: errTardy}
		s.asking = q
		go s.inquire(inquiring, q)
	}
	q.waiting++
	s.mu.Unlock()
	select {
	case <-q.done:
		return q.answer, q.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.waiting--; q.waiting == 0 {
		q.cancel()
		if s.asking == q {
			s.asking = nil
		}
	}
	return answer{}, &nobodyError{all: append(slices.Clone(q.said), fmt.Errorf("%w: %w", errTardy, ctx.Err()))}
}

func (s *sentinels) inquire(ctx context.Context, q *inquiry) {
	defer func() { // even if Credentials, which is user code, ends the goroutine
		s.mu.Lock()
		if s.asking == q {
			s.asking = nil
		}
		s.mu.Unlock()
		q.cancel()
		close(q.done)
	}()
	s.mu.Lock()
	known := s.current.address != ""
	s.mu.Unlock()
	if known {
		q.answer, q.err = s.askInTurn(ctx, q)
	} else {
		q.answer, q.err = s.askTogether(ctx, q)
	}
}

// lasting reports whether a sentinel would give the same answer again.
func lasting(err error) bool {
	return redisconn.Refused(err) || errors.Is(err, errUnknownName) || errors.Is(err, errNoSentinel)
}

// askTogether asks all sentinels of the URL concurrently and takes the newest answer. There is no
// earlier answer yet that would expose a sentinel that is cut off.
func (s *sentinels) askTogether(ctx context.Context, q *inquiry) (newest answer, err error) {
	answers, errs := make([]answer, len(s.listed)), slices.Repeat([]error{errTardy}, len(s.listed))
	var all sync.WaitGroup
	for i, address := range s.listed {
		all.Go(func() { answers[i], errs[i] = s.askOne(ctx, address) })
	}
	all.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range answers {
		if errs[i] == nil && (newest.address == "" || a.epoch > newest.epoch) {
			newest, s.first = a, s.listed[i]
		}
	}
	if newest.address == "" {
		q.said = errs
		return newest, &nobodyError{all: errs, final: !slices.ContainsFunc(errs, func(err error) bool { return !lasting(err) })}
	}
	return newest, nil
}

// askInTurn asks the sentinels in turn and takes the first answer that isn't older than the current
// one. If most sentinels of the URL agree on an older master, they were set up again, so it
// believes them.
func (s *sentinels) askInTurn(ctx context.Context, q *inquiry) (answer, error) {
	var older []answer
	sure := true // they would give the same answer again
	for _, address := range s.inOrder() {
		a, err := s.askOne(ctx, address)
		s.mu.Lock()
		switch {
		case err == nil && a.epoch >= s.current.epoch:
			s.first = address
			s.mu.Unlock()
			return a, nil
		case err == nil:
			if err = fmt.Errorf("sentinel %s: %w", address, errOlder); slices.Contains(s.listed, address) {
				older = append(older, a)
			}
		}
		sure = sure && lasting(err)
		q.said = append(q.said, err)
		s.first = s.afterLocked(address) // the next inquiry may have less time
		s.mu.Unlock()
		if ctx.Err() != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if same := func(a answer) bool { return a.replaces(older[0]) }; 2*len(older) > len(s.listed) && !slices.ContainsFunc(older, same) {
		s.current.epoch = older[0].epoch
		return older[0], nil
	}
	return answer{}, &nobodyError{all: slices.Clone(q.said), final: sure}
}

// afterLocked returns the sentinel that comes after one.
func (s *sentinels) afterLocked(address string) string {
	all := slices.Concat(s.listed, s.learned)
	return all[(slices.Index(all, address)+1)%len(all)]
}

// askOne asks one sentinel on a new connection for the master and for the other sentinels.
func (s *sentinels) askOne(ctx context.Context, address string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	watcher := s.watcher
	watcher.Address = address
	conn, err := watcher.Dial(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("sentinel: %w", err)
	}
	defer conn.Close() //nolint:errcheck // not needed anymore
	a, err := s.question(ctx, conn)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("no reply within %v: %w", s.within, os.ErrDeadlineExceeded)
	}
	if err != nil {
		return answer{}, fmt.Errorf("sentinel %s: %w", address, err)
	}
	a.by = address
	if others, err := redis.Values(redis.DoContext(conn, ctx, "SENTINEL", "SENTINELS", s.name)); err == nil { // otherwise, use those of the URL
		s.learn(address, others)
	}
	return a, nil
}

// askKept asks a sentinel on a connection that stays open.
func (s *sentinels) askKept(ctx context.Context, kept map[string]redis.Conn, address string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	conn := kept[address]
	if conn == nil {
		watcher := s.watcher
		watcher.Address = address
		var err error
		if conn, err = watcher.Dial(ctx); err != nil {
			return answer{}, err
		}
		kept[address] = conn
	}
	a, err := s.question(ctx, conn)
	if err != nil {
		_ = conn.Close() // the next turn makes a new one
		delete(kept, address)
	}
	return a, err
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
	slices.Sort(learned)
	s.learned = learned
}
