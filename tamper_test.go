package worqr_test

import (
	"context"
	"slices"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A tamper is a pool whose connections have rounds come late to Redis.
type tamper struct {
	addr string
	send func(back bool) // before a round is sent, in a goroutine; told whether it gives tasks back
}

func (p *tamper) GetContext(ctx context.Context) (redis.Conn, error) {
	c, err := redis.DialContext(ctx, "tcp", p.addr)
	return &tampered{Conn: c, of: p}, err
}

type tampered struct {
	redis.Conn
	of   *tamper
	args []any // of a script that is to be called; Receive sends it
}

func (c *tampered) Send(name string, args ...any) error {
	if name == "EVALSHA" {
		c.args = args
	}
	return c.Conn.Send(name, args...)
}

func (c *tampered) Flush() error {
	if c.args != nil {
		return nil
	}
	return c.Conn.Flush()
}

func (c *tampered) Receive() (any, error) { return c.ReceiveWithTimeout(0) }

func (c *tampered) ReceiveWithTimeout(d time.Duration) (any, error) {
	if c.args != nil {
		c.of.send(slices.Contains(c.args, any("stop")))
		c.args = nil
		if err := c.Conn.Flush(); err != nil {
			return nil, err
		}
	}
	return redis.ReceiveWithTimeout(c.Conn, d)
}

func (c *tampered) DoWithTimeout(d time.Duration, name string, args ...any) (any, error) {
	return redis.DoWithTimeout(c.Conn, d, name, args...)
}
