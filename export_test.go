package worqr

import (
	"time"

	"github.com/worqr/worqr/internal/redisconn"
)

// Older compares versions of Redis.
var Older = older

// OpenImpatient is Open for a peer whose lines, but for that of the beats, wait so long for
// a reply.
func OpenImpatient(url string, opts *Options, silence time.Duration) (*Peer, error) {
	dial, err := redisconn.FromURL(url)
	if err != nil {
		return nil, err
	}
	p := newPeer(dial, opts)
	p.calls = redisconn.NewLine(dial, silence).Verified()
	p.work = [2]*redisconn.Line{redisconn.NewLine(dial, silence), redisconn.NewLine(dial, silence)}
	return p, p.bad
}
