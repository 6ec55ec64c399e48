package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A stream enqueues tasks until it is closed, and records those that Redis accepted.
type stream struct {
	wg    sync.WaitGroup
	stop  chan struct{}
	mu    sync.Mutex // protects taken
	taken []string
}

func newStream(t *testing.T, q *worqr.Queue) *stream {
	t.Helper()
	s := &stream{stop: make(chan struct{})}
	s.wg.Go(func() {
		pace := time.NewTicker(2 * time.Millisecond) // a load that two cores can handle next to the servers
		defer pace.Stop()
		for i := 0; ; i++ {
			select {
			case <-s.stop:
				return
			case <-pace.C:
			}
			name := fmt.Sprint(i)
			if q.Enqueue(t.Context(), []byte(name)) == nil {
				s.mu.Lock()
				s.taken = append(s.taken, name)
				s.mu.Unlock()
			}
		}
	})
	return s
}

// count returns how many tasks were accepted.
func (s *stream) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// close ends the stream, and returns the accepted tasks.
func (s *stream) close() []string {
	close(s.stop)
	s.wg.Wait()
	return s.taken
}

// isConnected reports whether a user is connected to a server. It is false if the server doesn't
// answer.
func isConnected(server *redistest.Server, user string) bool {
	c, err := redis.DialURL(server.URL(), redis.DialConnectTimeout(time.Second), redis.DialReadTimeout(time.Second))
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	list, err := redis.String(c.Do("CLIENT", "LIST"))
	return err == nil && strings.Contains(list, "user="+user+" ")
}

// afterPromotion is the bound of docs/guarantees.md on when tasks run at the new master. It usually
// takes a third of a second, or one if the old master keeps running.
const afterPromotion = 5 * time.Second

// Two workers and a producer survive a failover, however the master goes away, with the ACL users
// of docs/security.md. Soon after the promotion they run the new master's tasks. Nothing that it
// acknowledges from then on is lost.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	for how, do := range map[string]func(*testing.T, *redistest.Sentinels, *redistest.Server){
		"by hand": func(t *testing.T, s *redistest.Sentinels, _ *redistest.Server) { s.Failover(t) },
		"killed":  func(t *testing.T, s *redistest.Sentinels, m *redistest.Server) { s.Hurry(t); m.Kill() },
		"frozen":  func(t *testing.T, s *redistest.Sentinels, m *redistest.Server) { s.Hurry(t); m.Pause(t) },
		"by hand, and a sentinel that doesn't know is asked first": func(t *testing.T, s *redistest.Sentinels, _ *redistest.Server) {
			s.Failover(t)
		},
	} {
		t.Run(how, func(t *testing.T) {
			is := parallel(t)
			servers := redistest.StartSentinels(t, redistest.SentinelSetup{})
			old, url := servers.Master(t), servers.URL()
			for _, s := range servers.Servers {
				rule := redis.Args{"SETUSER", "worker-p"}.AddFlat(redistest.Rule(t, "worker", "p"))
				redistest.Do(t, redistest.Dial(t, s.URL()), "ACL", rule...)
			}
			if strings.Contains(how, "asked first") {
				url = strings.Replace(url, "://", "://"+servers.Stray(t, old).Addr()+",", 1)
			}
			url = strings.Replace(url, "://", "://worker-p:SECRET@", 1)

			ran := &tally{}
			for range 2 {
				p := openAt(t, url, worqr.Options{Prefix: "p"})
				p.Queue("q").Handle(ran.handle, &worqr.HandleOptions{Concurrency: 4})
				run(t, p)
			}
			tasks := newStream(t, openAt(t, url, worqr.Options{Prefix: "p"}).Queue("q"))
			eventually(t, "tasks run", func() bool { return ran.len() > 100 })

			do(t, servers, old)
			now := servers.Promoted(t, old)
			promoted := time.Now()
			there := openAt(t, now.URL(), worqr.Options{Prefix: "p"}).Queue("q")
			is.NoErr(there.Enqueue(t.Context(), []byte("at the new master")))
			eventually(t, "a task runs", func() bool { return ran.of("at the new master") > 0 })
			took := time.Since(promoted)
			t.Log("a task ran", took.Round(time.Millisecond), "after the promotion")
			is.True(took < afterPromotion)

			late := openAt(t, url, worqr.Options{Prefix: "p"}).Queue("q")
			for i := range 100 {
				is.NoErr(late.Enqueue(t.Context(), fmt.Append(nil, "late ", i)))
			}
			for i := range 100 {
				eventually(t, "what is enqueued later runs", func() bool { return ran.of(fmt.Sprint("late ", i)) > 0 })
			}
			eventually(t, "all have left the old master", func() bool { return !isConnected(old, "worker-p") })
			moved := tasks.count()
			eventually(t, "the producer goes on", func() bool { return tasks.count() > moved+20 })
			taken := tasks.close()
			allDone(t, there)
			lost := 0
			for _, name := range taken {
				if ran.of(name) == 0 {
					lost++
				}
			}
			t.Logf("of %d tasks that were accepted before and after, %d are lost", len(taken), lost)
			for _, name := range taken[moved+1:] { // one may have been in flight
				is.True(ran.of(name) > 0)
			}
		})
	}
}

// Check examines the master, and reports how to limit the loss of a failover.
func TestCheckAtSentinels(t *testing.T) {
	is := parallel(t)
	servers := redistest.StartSentinels(t, redistest.SentinelSetup{})
	p := openDoctor(t, servers.URL(), worqr.Options{Prefix: "p"})
	said := sure(p.Check(t.Context(), nil))(t).String()
	is.True(strings.Contains(said, "Set min-replicas-to-write 1 and min-replicas-max-lag 3 on every server"))
	is.True(!strings.Contains(said, "is a replica"))
	redistest.DoAll(t, redistest.Dial(t, servers.Failover(t).URL()),
		[][]any{{"CONFIG", "SET", "min-replicas-to-write", 1}, {"CONFIG", "SET", "repl-diskless-sync-delay", 0}})
	var found string
	defer func() { t.Log(found) }()
	eventually(t, "the new master is examined, with both replicas", func() bool {
		r, err := p.Check(t.Context(), nil)
		found = fmt.Sprint(r, err)
		return err == nil && !strings.Contains(found, "replicas-to-write") && !strings.Contains(found, "has no replica")
	})
}

// Errors about sentinels name their addresses and show no password.
func TestSentinelErrors(t *testing.T) {
	is := parallel(t)
	var log journal
	p := sure(worqr.Open("redis+sentinel://ann:canary1@127.0.0.1:1,127.0.0.1:2/main?sentinel=canary2", &worqr.Options{
		Logger: log.Logger(), CallTimeout: 2 * time.Second,
	}))(t)
	err := p.Queue("q").Enqueue(t.Context(), []byte("a"))
	is.True(err != nil && !is_(err, worqr.ErrUnknownOutcome))
	for _, part := range []string{"127.0.0.1:1", "127.0.0.1:2", "connection refused"} {
		is.True(strings.Contains(err.Error(), part))
	}
	is.True(p.StartWorker(t.Context()) != nil)
	is.NoErr(p.Close())
	is.True(!strings.Contains(err.Error(), "canary"))
	is.Equal(len(log.Lines("canary")), 0)

	login := func(context.Context) (string, string, error) { return "", "", nil }
	for _, opts := range []*worqr.Options{{Credentials: login}, {SentinelCredentials: login}, {DialTimeout: -1}, {DialTimeout: time.Millisecond}} {
		_, err := worqr.Open("redis+sentinel://ann:canary1@h/main?sentinel=canary2", opts)
		is.True(is_(err, worqr.ErrInvalid) && !strings.Contains(err.Error(), "canary"))
	}
	pooled := worqr.New(&redis.Pool{Dial: func() (redis.Conn, error) { return redis.DialURL(redistest.URL()) }}, &worqr.Options{Credentials: login})
	is.True(is_(pooled.Queue("q").Enqueue(t.Context(), []byte("a")), worqr.ErrInvalid))
}

// If a service repeatedly cuts the connections whose password has expired, nobody notices: no beat
// is missed, no task is lost or runs twice, and nothing is logged. As with tokens, a password stays
// valid for one more round, since a dial that uses it may be in progress.
func TestCredentialsExpire(t *testing.T) {
	is := parallel(t)
	server, conn := redistest.StartAndDial(t)
	var mu sync.Mutex
	password := "0"
	rule := redis.Args{"SETUSER", "worker-aged"}.AddFlat(redistest.Rule(t, "worker", "p")).Add("resetpass", ">0")
	redistest.Do(t, conn, "ACL", rule...)
	var log journal
	ran := &tally{}
	p := sure(worqr.Open("redis://"+server.Addr(), &worqr.Options{
		Prefix: "p", Lease: time.Second, Logger: log.Logger(), Credentials: func(context.Context) (string, string, error) {
			mu.Lock()
			defer mu.Unlock()
			return "worker-aged", password, nil
		},
	}))(t)
	p.Queue("q").Handle(ran.handle, &worqr.HandleOptions{Concurrency: 4})
	run(t, p)
	producing := openAt(t, server.URL(), worqr.Options{Prefix: "p"}) // another user, since enqueues aren't repeated
	is.NoErr(producing.Queue("q").Enqueue(t.Context(), []byte("first")))
	eventually(t, "the first one runs", func() bool { return ran.of("first") > 0 })
	id := p.WorkerID()
	beats := func() int { return redistest.Calls(t, conn, "pexpire") }
	channels := func(after int) (n, newest int) { // of newer clients
		for line := range strings.Lines(sure(redis.String(conn.Do("CLIENT", "LIST", "TYPE", "pubsub")))(t)) {
			var id, sub, psub int
			for _, field := range strings.Fields(line) {
				name, value, _ := strings.Cut(field, "=")
				if of := map[string]*int{"id": &id, "sub": &sub, "psub": &psub}[name]; of != nil {
					*of = sure(strconv.Atoi(value))(t)
				}
			}
			if id > after {
				n, newest = n+sub+psub, max(newest, id)
			}
		}
		return n, newest
	}
	subscribed, newest := channels(0)
	for i := range 12 {
		name := fmt.Sprint(i)
		redistest.Do(t, conn, "ACL", "SETUSER", "worker-aged", ">"+fmt.Sprint(i+1))
		mu.Lock()
		password = fmt.Sprint(i + 1)
		mu.Unlock()
		if i > 0 {
			redistest.Do(t, conn, "ACL", "SETUSER", "worker-aged", "<"+fmt.Sprint(i-1))
		}
		redistest.Do(t, conn, "CLIENT", "KILL", "USER", "worker-aged")
		is.NoErr(producing.Queue("q").Enqueue(t.Context(), []byte(name)))
		eventually(t, "it runs", func() bool { return ran.of(name) > 0 })
		// A connection that is cut again before it was of use would be logged, correctly.
		cut := newest
		eventually(t, "it subscribes", func() bool {
			var n int
			n, newest = channels(cut)
			return n >= subscribed
		})
		before := beats()
		eventually(t, "beats go on", func() bool { return beats() > before+1 })
		is.Equal(ran.of(name), 1)
	}
	is.Equal(p.WorkerID(), id)
	for _, level := range []string{"level=WARN", "level=ERROR", "answers again"} {
		is.Equal(log.Lines(level), nil)
	}
}
