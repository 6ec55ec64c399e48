package redisconn

import (
	"errors"
	"time"
)

// errHangsUp explains why no messages come through a proxy without pub/sub. The connection's own
// error would suggest that Redis doesn't answer.
var errHangsUp = errors.New("the server closes connections that subscribe; it may be a proxy without pub/sub")

// blame determines why a session has ended. If a server answers, but repeatedly ends the session
// before it has confirmed a subscription, it doesn't allow subscriptions. A known error isn't
// logged: it was logged before, or will be if it repeats.
func (f *feed) blame(err error) (_ error, known bool) {
	switch {
	case f.confirmed:
		f.futile = 0
		return err, false
	case !f.open:
		return err, false
	}
	f.futile++
	if f.futile > 1 && Away(err) {
		err, known = errHangsUp, f.futile < mostFutile
	}
	return err, known || f.denied
}

// rest waits between two sessions. It reports the gap to all listeners, including those that are
// added while it waits. It returns false when the feed is stopped.
func (f *feed) rest(pause time.Duration, err error) bool {
	for over := time.After(pause); ; {
		for _, l := range f.all() {
			if l.Failed != nil {
				l.Failed(err)
			}
		}
		select {
		case <-f.ctx.Done():
			return false
		case <-over:
			return true
		case <-f.some:
		}
	}
}

// passes reports whether an error reply doesn't concern the subscription: it is retried on another
// connection. All other replies refuse it, whatever words a proxy uses.
func passes(err error) bool {
	return !Denied(err) && (poisoned(err) || replied(err, "BUSY", "TRYAGAIN", "ERR max number of clients", "DENIED"))
}
