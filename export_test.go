package worqr

// BeforeLog has f called before a line is logged, where that happens.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// BeforeDigest has f called before the digest of a large payload that was taken is
// computed. It is to be called before the worker starts.
func (p *Peer) BeforeDigest(f func(payload []byte)) { p.engine.BeforeDigest = f }
