package redistest_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// A request that arrives in many pieces loses just one reply, and searching each piece delays
// nothing.
func TestLoseReplyToLongRequest(t *testing.T) {
	is := is.New(t)
	server := redistest.Start(t)
	link := redistest.NewLink(t, server.Addr())
	lost := link.LoseRepliesTo("xx", 2)

	long := bytes.Repeat([]byte("x"), 1<<20)
	for range 2 {
		c, err := redis.DialURL(link.URL(), redis.DialReadTimeout(10*time.Second))
		is.NoErr(err)
		_, err = c.Do("SET", "key", long)
		is.True(err != nil) // the reply is lost
		_ = c.Close()
	}
	<-lost
	c, err := redis.DialURL(link.URL())
	is.NoErr(err)
	defer func() { is.NoErr(c.Close()) }()
	got, err := redis.Bytes(c.Do("GET", "key"))
	is.NoErr(err)
	is.True(bytes.Equal(got, long)) // the requests were carried out
}
