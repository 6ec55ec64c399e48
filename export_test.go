package worqr

// BeforeLog makes the peer call f before it logs a line, in the goroutine that logs it.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// Wrap adds the verb to err, as methods do.
func Wrap(verb string, err error) error { return wrap(verb, err) }
