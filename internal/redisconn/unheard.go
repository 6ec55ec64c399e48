package redisconn

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"
)

// errHangsUp explains why no messages come through a proxy without pub/sub. The connection's own
// error would suggest that Redis doesn't answer.
var errHangsUp = errors.New("the server closes connections that subscribe; it may be a proxy without pub/sub")

// blame determines why a session has ended. If a server answers, but repeatedly ends the session
// before it has confirmed a subscription, it doesn't allow subscriptions. A known error isn't
// logged: it was logged before, or will be if it repeats.
func (s *Subscriber) blame(err error) (_ error, known bool) {
	switch {
	case s.confirmed:
		s.futile = 0
		return err, false
	case !s.open:
		return err, false
	}
	s.futile++
	if s.futile > 1 && Away(err) {
		err, known = errHangsUp, s.futile < mostFutile
	}
	return err, known || s.denied
}

// rest waits between two sessions. It reports the gap to all listeners, including those that are
// added while it waits.
func (s *Subscriber) rest(ctx context.Context, pause time.Duration, err error) {
	for over := time.After(pause); ; {
		s.mu.Lock()
		all := slices.Collect(maps.Keys(s.listeners))
		s.mu.Unlock()
		for _, l := range all {
			if l.Failed != nil {
				l.Failed(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-over:
			return
		case <-s.some:
		}
	}
}

// passes reports whether an error reply doesn't concern the subscription: it is retried on another
// connection. All other replies refuse it, whatever words a proxy uses.
func passes(err error) bool {
	return !Denied(err) && (poisoned(err) || replied(err, "BUSY", "TRYAGAIN", "ERR max number of clients", "DENIED"))
}
