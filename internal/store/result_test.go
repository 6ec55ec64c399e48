package store

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestRecord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*Record{
		"finished:17:0:":      {End: EndFinished, At: 17},
		"finished:17:0:=":     {End: EndFinished, At: 17, Result: []byte{}},
		"failed:17:5:a:b:c":   {End: EndFailed, At: 17, Error: "a:b:c"},
		"failed:17:5:a:b:c=d": {End: EndFailed, At: 17, Error: "a:b:c", Result: []byte("d"), Size: 1},
		"finished:17:0:?x":    {End: EndFinished, At: 17},
		"finished:17:0:#8:x":  {End: EndFinished, At: 17, Size: 8},
		"finished:17:9:x":     nil, "finished:17:-1:x": nil, "finished:x:0:": nil, "finished:17:": nil, "foreign": nil, "": nil,
		// Another program may have written them, for a terminal.
		"fin\x1bished:17:0:": nil, ":17:0:": nil, "finished:17:0:#-5:x": nil, "finished:-17:0:": nil, "finished:17:+0:": nil, "finished:9223372036854775807:0:": nil,
	} {
		is := is.New(t)
		is.Equal(readRecord([]byte(text)), want)
	}
}

// Listeners are notified once they are subscribed, for each message, and when the connection closes.
func TestAwaitEnd(t *testing.T) {
	e := beside(t, nil)
	l, _ := linesTo(t, Single(sure(redisconn.FromURL(redistest.URL()))(t)), time.Second)
	looks, closed := make(chan bool, 10), make(chan bool, 1)
	stop, err := l.AwaitEnd(e.q, "k:x", EndListener{Look: func() { looks <- true }, Heard: func(bool) {}, Closed: func() { closed <- true }})
	e.is.NoErr(err)
	<-looks
	e.must(e.conn.Do("PUBLISH", e.q.End("k:y"), ""))
	e.must(e.conn.Do("PUBLISH", e.q.End("k:x"), ""))
	<-looks
	e.is.Equal(len(looks), 0)
	_, err = l.AwaitEnd(e.q, "k:y", EndListener{Look: func() {}, Heard: func(bool) {}, Closed: func() {}})
	e.is.NoErr(err)
	l.Close()
	<-closed
	stop()
	_, err = l.AwaitEnd(e.q, "k:x", EndListener{})
	e.is.Equal(err, ErrClosed)
}
