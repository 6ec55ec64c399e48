package worqr_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(peertest.Main(m)) }

func TestEnqueueAndHandleInOrder(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	got := make(chan string, 300)
	q.Handle(tell(got), &worqr.HandleOptions{Concurrency: 1})
	stop := run(t, p)
	var want []string
	for i := range 100 { // one payload, and several
		s := numbers(fmt.Sprint(i, "/"), 1+i%3)
		enqueue(t, q, s...)
		want = append(want, s...)
	}
	is.Equal(receive(t, got, len(want)), want)
	stop()
	is.Equal(p.Stats().Finished, int64(len(want)))
	is.Equal(p.Stats().RunningHandlers, int64(0))
	nothingLeft(t, prefix, "q")
}

// The zero options, as most programs use them, with the default prefix.
func TestDefaults(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p := sure(worqr.Open(server.URL(), nil))(t)
	defer p.Close()
	q := p.Queue("q")
	got := make(chan string, 1)
	q.Handle(tell(got), nil)
	stop := run(t, p)
	must(t, q.Enqueue(t.Context(), []byte("hello")))
	is.Equal(receive(t, got, 1), []string{"hello"})
	stop()
	is.Equal(slices.DeleteFunc(redistest.Keys(t, redistest.Dial(t, server.URL()), "worqr"), redistest.IsHistory), []string{"worqr:protocol", "worqr:registry", "worqr:state:{q}"})
}

// The application's own pool.
func TestExistingPool(t *testing.T) {
	t.Parallel()
	for name, pool := range map[string]func(url string) worqr.Pool{
		"redigo": func(url string) worqr.Pool {
			return &redis.Pool{
				DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, url) },
				MaxActive:   1, // the peer's long-lived connections must not exhaust it
				Wait:        true,
			}
		},
		"another": func(url string) worqr.Pool {
			return otherPool{&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(url) }}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			redistest.OneServer(t, redistest.OwnPool)
			prefix := redistest.Prefix(t)
			p := worqr.New(pool(redistest.Worker(t, redistest.URL(), prefix)), &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)})
			defer p.Close()
			got := make(chan string, 1)
			p.Queue("q").Handle(tell(got), nil)
			stop := run(t, p)
			for i := range 10 {
				enqueue(t, p.Queue("q"), fmt.Sprint(i))
				is.Equal(receive(t, got, 1), []string{fmt.Sprint(i)})
			}
			stop()
			nothingLeft(t, prefix, "q")
		})
	}
}

type otherPool struct{ pool *redis.Pool }

func (o otherPool) GetContext(ctx context.Context) (redis.Conn, error) { return o.pool.GetContext(ctx) }

// Helpers shared by the tests of the root and of integration/api.
const (
	canary   = peertest.Canary
	far      = peertest.Far
	patience = peertest.Patience
)

type (
	journal = peertest.Journal
	tamper  = peertest.Tamper
)

var (
	broken         = peertest.Broken
	cancel         = peertest.Cancel
	contents       = peertest.Contents
	counting       = peertest.Counting
	enqueue        = peertest.Enqueue
	eventually     = peertest.Eventually
	failed         = peertest.Failed
	failedPayloads = peertest.FailedPayloads
	held           = peertest.Held
	hold           = peertest.Hold
	holding        = peertest.Holding
	idle           = peertest.Idle
	ills           = peertest.Ills
	intact         = peertest.Intact
	is_            = peertest.Is
	matching       = peertest.Matching
	matchingAny    = peertest.MatchingAny
	must           = peertest.Must
	newGate        = peertest.NewGate
	noTask         = peertest.NoTask
	nothingLeft    = peertest.NothingLeft
	nothingLeftBut = peertest.NothingLeftBut
	numbers        = peertest.Numbers
	open           = peertest.Open
	openAt         = peertest.OpenAt
	openDoctor     = peertest.OpenDoctor
	openQueue      = peertest.OpenQueue
	openQueueAt    = peertest.OpenQueueAt
	panics         = peertest.Panics
	parallel       = redistest.Parallel
	payloads       = peertest.Payloads
	add            = peertest.Add
	receiveClosed  = peertest.ReceiveClosed
	run            = peertest.Run
	named          = peertest.Named
	scheduled      = peertest.Scheduled
	start          = peertest.Start
	stats          = peertest.Stats
	take           = peertest.Take
	tell           = peertest.Tell
	tells          = peertest.Tells
	told           = peertest.Told
	verbs          = peertest.Verbs
	wait           = peertest.Wait
	waiting        = peertest.Waiting
	working        = peertest.Working
)

func sure[T any](v T, err error) func(testing.TB) T { return redistest.Sure(v, err) }

func failure[T any](v T, err error) error { return peertest.Failure(v, err) }

func each[T any](t testing.TB, all iter.Seq2[T, error]) iter.Seq[T] { return redistest.Each(t, all) }

func receive[T any](t testing.TB, from <-chan T, n int) []T {
	t.Helper()
	return peertest.Receive(t, from, n)
}

// A value that should be a number but isn't may be a payload: no error or log line shows it.
func TestErrorsOfNumbers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := strconv.Atoi("canary")
	is.True(!strings.Contains(worqr.Wrap("count", fmt.Errorf("of two: %w", err)).Error(), "canary"))
	var lines strings.Builder
	l := logs.New(slog.New(slog.NewTextHandler(&lines, nil)))
	l.Warn("worqr: can't start or finish tasks", "err", err)
	l.Flush()
	is.True(strings.Contains(lines.String(), "where one was expected"))
	is.True(!strings.Contains(lines.String(), "canary"))
}
