package scripts_test

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// A clockwork runs calls on a server of its own whose time is that of a synctest bubble, so that weeks pass in
// seconds. A door between client and server changes the scripts: they read the time from the key clock.
// The calls are made outside the bubble, and those inside wait for them on a pipe: while they do, the bubble's
// time stands still.
type clockwork struct {
	line *redisconn.Line
	conn redis.Conn // inside the bubble; its user holds mu

	ask, answer [2]*os.File // reader and writer
	mu          sync.Mutex  // one exchange at a time
	ahead       time.Duration
	calls       []redisconn.Call
	replies     []redisconn.Reply
}

const (
	realTime    = `redis.call('TIME')`
	virtualTime = `redis.call('HMGET', 'clock', 's', 'us')`
)

// newClockwork must be called outside the bubble.
func newClockwork(t *testing.T) *clockwork {
	server, conn := redistest.StartAndDial(t)
	door := redistest.Listen(t, func(client net.Conn) { timeless(t, client, server.Addr()) })
	c := &clockwork{conn: conn, line: redisconn.NewLine(redistest.Sure(store.Open(door.URL(), store.Access{}))(t).Dial(), time.Minute)}
	t.Cleanup(c.line.Close)
	for _, pipe := range []*[2]*os.File{&c.ask, &c.answer} {
		r, w, err := os.Pipe()
		redistest.Must(t, err)
		*pipe = [2]*os.File{r, w}
		t.Cleanup(func() { r.Close(); w.Close() })
	}
	go func() {
		one := make([]byte, 1)
		for {
			if _, err := c.ask[0].Read(one); err != nil {
				return
			}
			c.replies = c.line.Do(context.Background(), c.calls...)
			if _, err := c.answer[1].Write(one); err != nil {
				return
			}
		}
	}()
	return c
}

// timeless forwards what a client says, with other scripts, and the answers.
func timeless(t *testing.T, client net.Conn, addr string) {
	up := redistest.Sure(net.Dial("tcp", addr))(t)
	defer up.Close()
	var replies sync.WaitGroup
	replies.Go(func() {
		buffer := make([]byte, 1<<16)
		for {
			n, err := up.Read(buffer)
			if err != nil {
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	changed := map[string]string{} // digests of scripts
	out := redis.NewConn(up, 0, 0)
	for words := range redistest.Requests(client) {
		switch command := strings.ToUpper(words[0]); {
		case command == "TIME":
			words = []string{"HMGET", "clock", "s", "us"}
		case command == "EVAL" || command == "SCRIPT" && strings.EqualFold(words[1], "LOAD"):
			text := &words[1]
			if command == "SCRIPT" {
				text = &words[2]
			}
			virtual := strings.ReplaceAll(*text, realTime, virtualTime)
			changed[redis.NewScript(0, *text).Hash()] = redis.NewScript(0, virtual).Hash()
			*text = virtual
		case command == "EVALSHA" && changed[words[1]] != "":
			words[1] = changed[words[1]]
		}
		if out.Send(words[0], redis.Args{}.AddFlat(words[1:])...) != nil || out.Flush() != nil {
			break
		}
	}
	up.Close()
	replies.Wait()
}

// now returns the server's time.
func (c *clockwork) now() time.Time { return time.Now().Add(c.ahead) }

// Do makes calls at the bubble's time. It ignores ctx: all calls are answered at once.
func (c *clockwork) Do(_ context.Context, calls ...redisconn.Call) []redisconn.Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if _, err := c.conn.Do("HSET", "clock", "s", now.Unix(), "us", now.Nanosecond()/1000); err != nil {
		panic(err)
	}
	one := []byte{1}
	c.calls = calls
	if _, err := c.ask[1].Write(one); err != nil {
		panic(err)
	}
	if _, err := c.answer[0].Read(one); err != nil {
		panic(err)
	}
	return c.replies
}

// One makes one call.
func (c *clockwork) One(ctx context.Context, call redisconn.Call) (any, error) {
	reply := c.Do(ctx, call)[0]
	return reply.Value, reply.Err
}

// snapshot copies all keys to a second database, and failover puts the copy in the place of the keys: what was
// written since the snapshot is lost.
func (c *clockwork) snapshot(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	redistest.DoAll(t, c.conn, [][]any{{"SELECT", 1}, {"FLUSHDB"}, {"SELECT", 0}})
	for _, key := range redistest.Keys(t, c.conn, "p") {
		redistest.Do(t, c.conn, "COPY", key, key, "DB", 1)
	}
}

func (c *clockwork) failover(t *testing.T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	redistest.Do(t, c.conn, "SWAPDB", 0, 1)
}

var _ store.Runner = (*clockwork)(nil)
