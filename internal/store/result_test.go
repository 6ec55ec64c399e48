package store

import (
	"log/slog"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

func TestReadResult(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]*Ended{
		"finished:17:0:":    {End: EndFinished, At: 17, Value: []byte{}},
		"finished:17:0:a:b": {End: EndFinished, At: 17, Value: []byte("a:b")},
		"failed:17:5:a:b:c": {End: EndFailed, At: 17, Error: "a:b:c", Value: []byte{}},
		"failed:17:1:abc":   {End: EndFailed, At: 17, Error: "a", Value: []byte("bc")},
		"finished:17:9:x":   nil, "finished:17:-1:x": nil, "finished:x:0:": nil, "finished:17:": nil, "foreign": nil, "": nil,
		// Another program may have written them, for a terminal.
		"fin\x1bished:17:0:": nil, ":17:0:": nil, "finished:-17:0:": nil, "finished:17:+0:": nil, "finished:9223372036854775807:0:": nil,
	} {
		is := is.New(t)
		is.Equal(readResult([]byte(text)), want)
	}
}

// Ends says how the last tasks of names ended, and for how long the results of others will be kept.
func TestEnds(t *testing.T) {
	is := redistest.Parallel(t)
	dial := redistest.Sure(Open(redistest.URL(), Access{}))(t).Dial()
	line := redisconn.NewLine(dial, time.Second)
	t.Cleanup(line.Close)
	q := keys.NewSpace(redistest.Prefix(t)).Queue("q")
	one := Record{Keep: time.Minute, Payload: []byte("a")}
	conn := redistest.Conn(t)
	redistest.Do(t, conn, "HSET", q.Tasks(), "k:a", one.Append(nil), "k:b", one.Append(nil))
	redistest.Do(t, conn, "HSET", q.Runs(), "k:b", "w.1.9.1n:0:0:")
	remove := func(name string) {
		t.Helper()
		_, err := line.One(t.Context(), remove.call(SharedOf(q), name, EndRemoved))
		is.NoErr(err)
	}
	ends := func() []Fate {
		t.Helper()
		all, err := Ends(t.Context(), line, q, []string{"k:a", "k:b", "k:c"})
		is.NoErr(err)
		return all
	}
	is.Equal(ends(), []Fate{{nil, time.Minute, -time.Millisecond}, {nil, -time.Millisecond, time.Minute}, {nil, -time.Millisecond, -time.Millisecond}})
	remove("k:a")
	first := ends()[0]
	is.Equal(first.Ended.End, EndRemoved)
	is.True(time.Since(time.UnixMicro(first.Ended.At)).Abs() < time.Minute)
	is.True(!first.Pending())
	redistest.Do(t, conn, "HSET", q.Tasks(), "k:a", one.Append(nil))
	remove("k:a")
	is.True(ends()[0].Ended.At > first.Ended.At) // however fast that was
}

// Listeners are notified once they are subscribed, for each message, and when the connection closes.
func TestAwaitEnd(t *testing.T) {
	is := redistest.Parallel(t)
	dial := redistest.Sure(Open(redistest.URL(), Access{}))(t).Dial()
	l := NewLines(Single(dial), logs.New(slog.New(slog.DiscardHandler)), time.Second, time.Second)
	q := keys.NewSpace(redistest.Prefix(t)).Queue("q")
	looks, closed := make(chan bool, 10), make(chan bool, 1)
	stop, err := l.AwaitEnd(q, "k:x", EndListener{Look: func() { looks <- true }, Heard: func(bool) {}, Closed: func() { closed <- true }})
	is.NoErr(err)
	<-looks
	conn := redistest.Conn(t)
	redistest.Do(t, conn, "PUBLISH", q.End("k:y"), "")
	redistest.Do(t, conn, "PUBLISH", q.End("k:x"), "")
	<-looks
	is.Equal(len(looks), 0)
	l.Close()
	<-closed
	stop()
	_, err = l.AwaitEnd(q, "k:x", EndListener{})
	is.Equal(err, ErrClosed)
}
