package redisconn

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"
)

// A reply that announces too much is rejected before memory is allocated for it. Other replies
// pass.
func TestBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, replies string
		good          bool
	}{
		{"valid replies", "+OK\r\n-ERR no\r\n:1\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n*2\r\n$3\r\na\nb\r\n*2\r\n:1\r\n$1\r\n*\r\n+after\r\n", true},
		{"a bulk that looks like more", "$14\r\n*999999999999\n\r\n:1\r\n", true},
		{"arrays in arrays", strings.Repeat("*1\r\n", maxDepth) + ":1\r\n:2\r\n", true},
		{"many arrays after one another", strings.Repeat("*1\r\n*1\r\n:1\r\n", 100), true},
		{"a web server", "HTTP/1.1 400 Bad Request\r\n", false},
		{"TLS", "\x15\x03\x01\x00\x02", false},
		{"another reply", "+OK\r\nno\r\n", false},
		{"a large bulk", "$536870913\r\n", false},
		{"a number that no int holds", "$99999999999999999999\r\n", false},
		{"a large array", "*131073\r\n", false},
		{"deep arrays", strings.Repeat("*1\r\n", maxDepth+1), false},
		{"a long line", "+" + strings.Repeat("a", maxLine+1), false},
		{"a long line in the place of a length", "$" + strings.Repeat("x", maxLine+1), false},
	} {
		for size := range 5 {
			t.Run(fmt.Sprintf("%s, %d", c.name, size), func(t *testing.T) {
				is := is.New(t)
				var b bounds
				var err error
				all := []byte(c.replies)
				for len(all) > 0 && err == nil {
					n := min(len(all), max(1, 3*size*size*size))
					err, all = b.check(all[:n]), all[n:]
				}
				is.Equal(err == nil, c.good)
				if c.good {
					is.Equal(b.nested+b.skip+int(b.kind), 0) // it is between two replies
				} else {
					is.True(errors.Is(err, errUnsound))
				}
			})
		}
	}
}

// A saying is a connection that delivers fixed bytes and then closes.
type saying struct {
	net.Conn
	io.Reader
}

func (s saying) Read(p []byte) (int, error)       { return s.Reader.Read(p) }
func (s saying) Write(p []byte) (int, error)      { return len(p), nil }
func (s saying) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s saying) Close() error                     { return nil }
func (s saying) SetReadDeadline(time.Time) error  { return nil }
func (s saying) SetWriteDeadline(time.Time) error { return nil }
func (s saying) SetDeadline(time.Time) error      { return nil }

// FuzzBounds: whatever the server sends, the driver uses little memory and doesn't panic, and a
// valid reply in pieces gives the same result as in one.
func FuzzBounds(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "*2\r\n$1\r\na\r\n*1\r\n:1\r\n", "$5\r\nab", "*-1\r\n$-1\r\n", "*131072\r\n*131072\r\n*131072\r\n", "$536870912\r\n", "*1\r\n*1\r\n*1\r\n"} {
		f.Add([]byte(seed))
	}
	receive := func(r io.Reader) (all []string, sound bool) {
		c := redis.NewConn(&boundedConn{Conn: saying{Reader: r}}, 0, 0)
		defer c.Close() //nolint:errcheck // there's nothing to close
		for {
			v, err := c.Receive()
			all = append(all, fmt.Sprintf("%q", v))
			if err != nil && c.Err() != nil {
				return all, !errors.Is(err, errUnsound)
			}
		}
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		if bytes.Contains(said, []byte("$5368")) {
			said = said[:0] // memory would rightly be allocated for it
		}
		whole, sound := receive(bytes.NewReader(said))
		pieces, alsoSound := receive(iotest.OneByteReader(bytes.NewReader(said)))
		if sound && alsoSound && fmt.Sprint(whole) != fmt.Sprint(pieces) {
			t.Errorf("%q is read as %v and, in pieces, as %v", said, whole, pieces)
		}
	})
}
