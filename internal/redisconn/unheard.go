package redisconn

import (
	"errors"
	"time"
)

// errHangsUp is why there are no messages behind a proxy without pub/sub. The error of the
// connection would say that Redis is away.
var errHangsUp = errors.New("the server ends connections that subscribe; a proxy may not support it")

// blame finds out why a session has ended. If a server answers and then ends the session before
// it has confirmed a subscription, again and again, then it lets nobody subscribe. An error that is
// known isn't logged: it was before, or it will be if it repeats.
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

// rest waits between two sessions. It tells all listeners that there is a gap, including those that
// come while it waits. It returns false when the feed is stopped.
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

// passing are further error replies that say nothing of the subscription: it is tried again
// with another connection. All others refuse it, in whatever words a proxy has for that.
var passing = []string{"BUSY", "TRYAGAIN", "ERR max number of clients"}
