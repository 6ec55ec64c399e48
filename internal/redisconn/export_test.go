package redisconn

// Waiting returns how many callers wait for the next exchange.
func (l *Line) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		return 0
	}
	return len(l.next.bundles)
}

// Exchanges reports whether an exchange is in progress: what is called now waits for the next.
func (l *Line) Exchanges() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now != nil
}

// Alarmed reports whether the timer of the alarm runs.
func (l *Line) Alarmed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alarm.on
}

// Running reports whether the stream has a goroutine.
func (s *Stream) Running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Closed reports whether Close was called.
func (s *Stream) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
