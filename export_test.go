package worqr

// BeforeLog has f called before a line is logged, where that happens.
func (p *Peer) BeforeLog(f func(msg string, attrs []any)) { p.log.Before = f }

// BeforeDigest has f called before the digest of a large payload that was taken is
// computed. It is to be called before the worker starts.
func (p *Peer) BeforeDigest(f func(payload []byte)) { p.engine.BeforeDigest = f }

// MostBacks is for how many queues at most a peer remembers what it knows of their back.
const MostBacks = mostBacks

// Backs is of how many queues the peer remembers what it knows of their back.
func (p *Peer) Backs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.backs)
}
