package worqr

// BeforeLog makes the peer call f before it logs a line, in the goroutine that logs it.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// Wrap adds the verb to err, as methods do.
func Wrap(verb string, err error) error { return wrap(verb, err) }

// ScheduleEnds makes the peer note that a schedule has ended, as one that serves the queue does.
func (p *Peer) ScheduleEnds(queue, key string) { p.scribe.ended(queue, []string{key}) }

// ScheduleBegins makes the peer note that it has registered a schedule.
func (p *Peer) ScheduleBegins(queue, key string) { p.scribe.begun(queue, key) }
