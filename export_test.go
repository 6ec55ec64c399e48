package worqr

// BeforeLog makes the peer call f before it logs a line, in the goroutine that logs it.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// BeforeDigest makes the peer call f before it computes the digest of a large payload. Call it
// before the worker starts.
func (p *Peer) BeforeDigest(f func(payload []byte)) { p.engine.BeforeDigest = f }

// Wrap adds the verb to err, as methods do.
func Wrap(verb string, err error) error { return wrap(verb, err) }
