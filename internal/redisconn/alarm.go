package redisconn

import "time"

// An alarm wakes the callers of a line that wait while Redis is silent, so that those whose calls
// haven't been sent can leave. One timer for all callers costs less than one for each. It runs only
// while the line is busy.
type alarm struct {
	limit time.Duration // how long Redis may be silent; a caller waits at least as long
	alive *life

	// The fields below are protected by Line.mu.
	timer *time.Timer // nil before the first caller
	on    bool        // the timer runs
	due   time.Time   // when it fires
	turns int         // how often it has fired
}

// turnsOfLimit is how often the timer fires within the limit. A caller may wait up to one turn
// longer.
const turnsOfLimit = 16

func newAlarm(limit time.Duration, alive *life) alarm {
	return alarm{limit: limit, alive: alive}
}

// expectLocked records that a bundle begins to wait.
func (l *Line) expectLocked(b *bundle) {
	a := &l.alarm
	b.joined = a.turns
	if a.on {
		return
	}
	step := a.limit / turnsOfLimit
	a.on, a.due = true, time.Now().Add(step)
	if a.timer == nil {
		a.timer = time.AfterFunc(step, l.turn)
	} else {
		a.timer.Reset(step)
	}
}

// turn runs when the timer fires. It makes up for a small delay of the timer, but not for a
// time during which the process was stopped: nobody could have heard Redis then.
func (l *Line) turn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.alarm
	a.turns++
	if a.on = l.busy; !a.on {
		return
	}
	if a.alive.since() >= a.limit {
		l.ringLocked()
	}
	now, step := time.Now(), a.limit/turnsOfLimit
	if a.due = a.due.Add(step); a.due.Before(now) {
		a.due = now.Add(step)
	}
	a.timer.Reset(a.due.Sub(now))
}

// ringLocked wakes the callers, so that each checks whether it may keep waiting.
func (l *Line) ringLocked() {
	for _, all := range [...]*batch{l.now, l.next} {
		if all != nil && all.wake != nil {
			close(all.wake)
			all.wake = make(chan struct{})
		}
	}
}

// muteLocked stops the timer of a line that is closed and isn't busy. It would keep the line in
// memory.
func (l *Line) muteLocked() {
	if l.alarm.on {
		l.alarm.timer.Stop()
		l.alarm.on = false
	}
}

// mayWait reports whether the caller of a bundle that the alarm has woken may keep waiting, and on
// which channel. If not, it drops the bundle. Once that's sent, the exchange has its own timeout.
// The alarm may have rung long before the caller looks.
func (l *Line) mayWait(b *bundle) (wake <-chan struct{}, may bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.alarm
	if b.sent || b.batch.over.Load() || a.turns-b.joined <= turnsOfLimit || a.alive.since() < a.limit {
		return b.batch.wake, true
	}
	b.dropLocked()
	return nil, false
}
