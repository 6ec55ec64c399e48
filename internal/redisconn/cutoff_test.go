package redisconn_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// cancellable returns a context that can end.
func cancellable(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx, cancel
}

// clientID returns the id of the line's connection.
func clientID(t *testing.T, l *redisconn.Line) int {
	t.Helper()
	id, err := redis.Int(l.One(context.Background(), redisconn.Command("CLIENT", "ID")))
	is.New(t).NoErr(err)
	return id
}

// occupy makes a call of the line wait for its reply. cut ends the context of the call, and release
// makes Redis reply. Both return when the call has returned; release returns its error.
func occupy(t *testing.T, l *redisconn.Line, server *redistest.Server) (cut func(), release func() error) {
	t.Helper()
	c := redistest.Dial(t, server.URL())
	ctx, cancel := cancellable(t)
	over := make(chan struct{})
	var err error
	go func() {
		defer close(over)
		_, err = l.One(ctx, redisconn.Command("BLPOP", "occupied", 0))
	}()
	until(t, c, "blocked_clients:1")
	cut = func() {
		cancel()
		<-over
	}
	return cut, func() error {
		_, refused := c.Do("RPUSH", "occupied", "x")
		is.New(t).NoErr(refused)
		<-over
		return err
	}
}

// until waits until Redis reports the text about its clients.
func until(t *testing.T, c redis.Conn, want string) {
	t.Helper()
	redistest.Eventually(t, "Redis says "+want, func() bool {
		return strings.Contains(redistest.Sure(redis.String(c.Do("INFO", "clients")))(t), want)
	})
}

// gather makes n concurrent calls, and waits until all of them wait for the line, which must be
// occupied. errs returns the errors in the order of the callers.
func gather(t *testing.T, l *redisconn.Line, n int, call func(i int) error) (errs func() []error) {
	t.Helper()
	results := make([]chan error, n)
	before := l.Waiting()
	for i := range results {
		results[i] = make(chan error, 1)
		go func() { results[i] <- call(i) }()
	}
	redistest.Eventually(t, "all wait for the line", func() bool { return l.Waiting() >= before+n })
	return func() (all []error) {
		for _, r := range results {
			all = append(all, <-r)
		}
		return all
	}
}

// A caller whose context ends returns before the reply comes. The connection stays open, and no
// other caller gets the reply.
func TestCutOff(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	l := line(t, server.URL())
	id := clientID(t, l)
	for range 3 {
		cut, release := occupy(t, l, server)
		echoes := gather(t, l, 5, func(i int) error {
			got, err := redis.String(l.One(t.Context(), redisconn.Command("ECHO", fmt.Sprint(i))))
			if err == nil && got != fmt.Sprint(i) {
				err = fmt.Errorf("got %q", got)
			}
			return err
		})
		cut() // returns when the call has returned
		err := release()
		is.True(errors.Is(err, redisconn.ErrUnknown) && errors.Is(err, context.Canceled))
		for _, err := range echoes() {
			is.NoErr(err)
		}
		is.Equal(clientID(t, l), id)
	}
}

// A call whose context ends while the line dials isn't sent, whatever the result of the dial. Neither is one whose
// context has ended before.
func TestCutOffWhileDialling(t *testing.T) {
	is := redistest.Parallel(t)
	server := redistest.Start(t)
	real := redistest.Sure(redisconn.FromURL(server.URL()))(t)
	dialling, on := make(chan bool), make(chan bool)
	l := redisconn.NewLine(func(ctx context.Context) (redis.Conn, error) {
		dialling <- true
		<-on
		return real(ctx)
	}, 0)
	defer l.Close()
	ctx, cancel := cancellable(t)
	result := make(chan error)
	go func() {
		_, err := l.One(ctx, redisconn.Command("INCR", "n"))
		result <- err
	}()
	<-dialling
	cancel()
	err := <-result
	is.True(errors.Is(err, context.Canceled) && !errors.Is(err, redisconn.ErrUnknown))
	close(on)
	_, err = l.One(ctx, redisconn.Command("INCR", "n"))
	is.True(errors.Is(err, context.Canceled) && !errors.Is(err, redisconn.ErrUnknown))
	is.Equal(redistest.Sure(redis.Int(l.One(t.Context(), redisconn.Command("EXISTS", "n"))))(t), 0)
}

// A connection stays open if its reply arrives after its caller has left.
func TestLateReply(t *testing.T) {
	is := redistest.Parallel(t)
	const timeout = 16 * time.Second // for a busy machine
	server := redistest.Start(t)
	l := lineOf(t, server.URL(), timeout)
	id := clientID(t, l)
	ctx, cancel := cancellable(t)
	answer := make(chan error)
	go func() {
		_, err := l.One(ctx, redisconn.Command("BLPOP", "list", "0"))
		answer <- err
	}()
	c := redistest.Dial(t, server.URL())
	until(t, c, "blocked_clients:1")
	cancel()
	is.True(errors.Is(<-answer, redisconn.ErrUnknown))
	redistest.Do(t, c, "LPUSH", "list", "x")
	redistest.Eventually(t, "the timer stops, which could have closed it", func() bool { return !l.Ticks() })
	is.Equal(clientID(t, l), id)
}
