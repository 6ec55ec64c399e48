package redistest

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"
)

// A Proxy is in front of a server and refuses one command, as some Redis-like services do. It can't
// see the commands of scripts.
type Proxy struct {
	*Door
	refused atomic.Int64
}

// NewProxy returns a proxy to the address. It answers a command with an error, or closes the
// connection.
func NewProxy(t testing.TB, to, command string, hangsUp bool) *Proxy {
	t.Helper()
	p := &Proxy{}
	p.Door = relay(t, to, func(client, server net.Conn) (requests, replies func()) {
		requests = func() {
			out := redis.NewConn(server, 0, 0)
			for words := range Requests(client) {
				if strings.EqualFold(words[0], command) {
					p.refused.Add(1)
					if hangsUp {
						return
					}
					// The error comes from the server, instead of the reply.
					words = []string{"EVAL", "return redis.error_reply('ERR unsupported by this proxy')", "0"}
				}
				if out.Send(words[0], redis.Args{}.AddFlat(words[1:])...) != nil || out.Flush() != nil {
					return
				}
			}
		}
		return requests, func() { _, _ = io.Copy(client, server) }
	})
	return p
}

// Refused returns how many times the command was refused.
func (p *Proxy) Refused() int { return int(p.refused.Load()) }
