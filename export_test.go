package worqr

import "time"

// BeforeLog has f called before a line is logged, where that happens.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// BeforeDigest has f called before the digest of a large payload that was taken is
// computed. It is to be called before the worker starts.
func (p *Peer) BeforeDigest(f func(payload []byte)) { p.engine.BeforeDigest = f }

// AgreeEach has a peer ask as often over how many parts others have spread a queue.
func (p *Peer) AgreeEach(d time.Duration) { p.spreads.Each = d }

// Wrap makes err an error of what a method does.
func Wrap(verb string, err error) error { return wrap(verb, err) }
