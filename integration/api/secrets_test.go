package api

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// A diary records all output: logs of every level, errors, and printed values.
type diary struct{ journal }

func (d *diary) String() string { return strings.Join(d.Lines(""), "") }

// logger writes into the diary, as text and as JSON.
func (d *diary) logger() *slog.Logger {
	all := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
	return slog.New(slog.NewMultiHandler(slog.NewTextHandler(d, all), slog.NewJSONHandler(d, all)))
}

// print prints things into the diary with every verb, and logs them.
func (d *diary) print(things ...any) {
	for _, thing := range things {
		fmt.Fprintf(d, "%v %+v %#v %s %q\n", thing, thing, thing, thing, thing)
		d.logger().Info("printed", "thing", thing)
	}
}

// keeps fails the test if the diary shows the secret in any encoding.
func (d *diary) keeps(t *testing.T, secret string) {
	t.Helper()
	said := d.String()
	for _, form := range []string{
		secret, hex.EncodeToString([]byte(secret)), strings.Trim(fmt.Sprint([]byte(secret)), "[]"),
		strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "="),
		fmt.Sprintf("%x", sha1.Sum([]byte(secret))), // would identify short payloads
	} {
		for line := range strings.Lines(said) {
			if i := strings.Index(line, form); i >= 0 {
				t.Errorf("%q is shown: …%s", secret, line[max(0, i-200):])
			}
		}
	}
	if said == "" {
		t.Error("nothing was recorded")
	}
}

// A password appears in no error, no log and nothing that is printed, whatever goes wrong.
func TestPasswordIsSecret(t *testing.T) {
	t.Parallel()
	const password = "canary%2Fpassw0rd"
	guarded := redistest.Start(t, "--requirepass", "another")
	renamed := redistest.Start(t, "--rename-command", "AUTH", "NO-AUTH")
	open := redistest.Start(t)
	authority := redistest.NewAuthority(t)
	secure := redistest.StartTLS(t, authority, []string{home})
	for name, url := range map[string]string{
		"no URL":        "redis://ann:" + password + "@host:port",
		"no escape":     "redis://ann:" + password + "%zz@host",
		"opaque":        "redis:ann:" + password,
		"no database":   "redis://ann:" + password + "@host/database",
		"no scheme":     "ann:" + password + "@host:6379",
		"no path":       "unix://ann:" + password + "@",
		"no host":       "redis://ann:" + password + "@no.such.host.invalid:1",
		"no port":       "redis://ann:" + password + "@" + home + ":99999",
		"no socket":     "unix://ann:" + password + "@/no/such/socket",
		"refused":       "redis://ann:" + password + "@" + redistest.Nowhere(t),
		"wrong":         "redis://ann:" + password + "@" + guarded.Addr(),
		"not wanted":    "redis://:" + password + "@" + open.Addr(),
		"as a name":     "redis://" + password + "@" + open.Addr(),
		"no AUTH":       "redis://ann:" + password + "@" + renamed.Addr(),
		"no TLS":        "rediss://ann:" + password + "@" + open.Addr(),
		"not trusted":   "rediss://ann:" + password + "@" + secure.Addr(),
		"not certified": "rediss://ann:" + password + "@" + secure.Addr() + "#trusted",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &diary{}
			url, trusted := strings.CutSuffix(url, "#trusted")
			opts := &worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond, Logger: d.logger()}
			if trusted {
				opts.TLSConfig = &tls.Config{RootCAs: authority.Pool()}
			}
			for way, peer := range map[string]func() (*worqr.Peer, error){
				"Open": func() (*worqr.Peer, error) { return worqr.Open(url, opts) },
				"New": func() (*worqr.Peer, error) {
					return worqr.New(&redis.Pool{Dial: func() (redis.Conn, error) {
						return redis.DialURL(url, redis.DialConnectTimeout(2*time.Second), redis.DialTLSHandshakeTimeout(2*time.Second), redis.DialTLSConfig(opts.TLSConfig))
					}}, opts), nil
				},
			} {
				p, err := peer()
				d.print(way, err, opts)
				if err != nil {
					continue
				}
				q := p.Queue("q")
				q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
				for e, err := range p.Events(t.Context()) {
					d.print(e, err)
					break
				}
				err = q.Enqueue(t.Context(), []byte("a"))
				if err == nil {
					t.Fatal("it is not refused")
				}
				d.print(err, errors.Unwrap(err), p, q, *q, p.Stats())
				ctx, end := context.WithCancel(t.Context())
				ran := make(chan error, 1)
				go func() { ran <- p.Run(ctx) }()
				eventually(t, "it is logged", func() bool { return strings.Contains(d.String(), "level=WARN") })
				end()
				d.print(<-ran, p.Close())
			}
			d.keeps(t, "canary/passw0rd")
			d.keeps(t, password)
		})
	}
}

// A revoked password is reported once, without showing it. The peer goes on when the password is
// valid again.
func TestPasswordRevoked(t *testing.T) {
	t.Parallel()
	server, c := redistest.StartAndDial(t)
	acl := func(args ...string) {
		t.Helper()
		redistest.Do(t, c, "ACL", redis.Args{}.AddFlat(args)...)
	}
	acl("SETUSER", "ann", "on", ">canary", "+@all", "~*", "&*")
	d := &diary{}
	p := openAt(t, "redis://ann:canary@"+server.Addr(), worqr.Options{Prefix: "p", Lease: 300 * time.Millisecond, Logger: d.logger()})
	starts, _ := counting(t, p, "q", nil)
	idle(t, p.Queue("q"), 1)
	acl("SETUSER", "ann", "resetpass", ">another")
	redistest.Do(t, c, "CLIENT", "KILL", "USER", "ann")
	eventually(t, "it is logged", func() bool { return strings.Contains(d.String(), "WRONGPASS") })
	eventually(t, "a call returns the error", func() bool { // the first call may only notice that the connection is gone
		err := p.Queue("q").Enqueue(t.Context(), []byte("a"))
		d.print(err, p)
		return err != nil && strings.Contains(err.Error(), "WRONGPASS") && !is_(err, worqr.ErrUnknownOutcome)
	})
	acl("SETUSER", "ann", ">canary")
	eventually(t, "it is enqueued", func() bool { return p.Queue("q").Enqueue(t.Context(), []byte("a")) == nil })
	receive(t, starts, 1)
	d.keeps(t, "canary")
}

// A payload appears in no log, error, counter, profile label or printed value, however its task
// ends.
func TestPayloadIsSecret(t *testing.T) {
	t.Parallel()
	const payload = `{"canary":"canarypayload"` // not valid JSON
	d := &diary{}
	is := is.New(t)
	prefix := redistest.Prefix(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond, Logger: d.logger()})
	look := open(t, worqr.Options{Prefix: prefix, Logger: d.logger()})
	running := make(chan bool, 100)
	held := make(chan struct{})
	outcomes := map[string]worqr.Handler{
		"nil": func(_ context.Context, t *worqr.Task) error {
			t.Result = []byte(payload)
			byValue := *t
			d.print(t, byValue)
			for _, inside := range []any{[]worqr.Task{byValue}, []*worqr.Task{t}, struct{ Task worqr.Task }{byValue}, map[string]any{"task": byValue}} {
				fmt.Fprintf(d, "%v %+v %#v %s\n", inside, inside, inside, inside)
			}
			return nil
		},
		"error":     func(context.Context, *worqr.Task) error { return errors.New("no") },
		"task":      func(_ context.Context, t *worqr.Task) error { return fmt.Errorf("cannot do %v", t) },
		"permanent": func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no")) },
		"panic":     func(_ context.Context, t *worqr.Task) error { panic(t) },
		"json":      worqr.JSON(func(context.Context, map[string]string, *worqr.Task) error { return nil }),
		"number":    worqr.JSON(func(context.Context, int, *worqr.Task) error { return nil }),
		"command":   worqr.Command("false"),
		"absent":    worqr.Command("/no/such/program"),
		"late": func(ctx context.Context, _ *worqr.Task) error {
			<-ctx.Done()
			return ctx.Err()
		},
		"stuck": func(context.Context, *worqr.Task) error {
			<-held
			return nil
		},
		"held": func(ctx context.Context, _ *worqr.Task) error {
			running <- true
			<-ctx.Done()
			return ctx.Err()
		},
	}
	for name, h := range outcomes {
		o := &worqr.HandleOptions{Concurrency: 2, MaxRetries: 1, Backoff: atOnce}
		if name == "late" || name == "stuck" {
			o.Timeout, o.Grace = 10*time.Millisecond, 10*time.Millisecond
		}
		p.Queue(name).Handle(h, o)
	}
	events, end := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	synced := make(chan bool)
	watching.Go(func() {
		once := sync.OnceFunc(func() { close(synced) })
		for e, err := range look.Events(events) {
			d.print(e, err)
			once()
		}
	})
	<-synced
	stop := run(t, p)
	for name := range outcomes {
		q := look.Queue(name)
		sure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte(payload), Unique: true}))(t)
		d.print(failure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte(payload), Unique: true}))) // may be a duplicate
		add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte(payload)})
		add(t, q, worqr.TaskSpec{Key: "later", Payload: []byte(payload), At: time.Now().Add(time.Hour)})
	}
	receive(t, running, 2)
	for _, profile := range pprof.Profiles() {
		if profile.Name() == "goroutine" {
			is.NoErr(profile.WriteTo(d, 1))
		}
	}
	var variables strings.Builder
	expvar.Do(func(v expvar.KeyValue) { variables.WriteString(v.Value.String()) })
	d.print(variables.String())
	for name := range outcomes {
		q := look.Queue(name)
		switch name {
		case "nil", "held":
		default:
			eventually(t, name+" has failed", func() bool { return stats(t, q).Failed >= 2 }) // one of them has the key
		}
		for r, err := range q.Running(t.Context()) {
			d.print(r, err)
		}
		for s, err := range q.Named(t.Context()) {
			d.print(s, err)
		}
		for f, err := range q.Failed(t.Context()) {
			d.print(f, err)
		}
		d.print(stats(t, q))
	}
	// Evicted, canceled, stopped.
	sure(look.FailWorker(t.Context(), p.WorkerID()))(t)
	receive(t, running, 2)
	report := cancel(t, look.Queue("held"), payload)
	wait(t, report)
	d.print(report, *report)
	close(held)
	stop()
	d.print(p, p.Stats(), look.Queue("held"), p.Close())
	end()
	watching.Wait()
	for _, secret := range []string{payload, "canary", hex.EncodeToString(sum(payload))} {
		d.keeps(t, secret)
	}
	is.True(strings.Contains(d.String(), "will be retried"))
}

// The same for the errors of calls that Redis refuses or doesn't answer.
func TestPayloadIsSecretInErrors(t *testing.T) {
	t.Parallel()
	const payload = "canary"
	for name, spoil := range map[string]func(t *testing.T, s *redistest.Server, link *redistest.Link){
		"full":      has("CONFIG SET maxmemory 1"),
		"a replica": has("REPLICAOF 127.0.0.1 1"),
		"foreign keys": has("RENAME p:queues:{q} p:aside", "SET p:queues:{q} x", "SET p:schedule:{q} x",
			"SET p:state:{q} x", "SET p:canceled:{q}:"+hex.EncodeToString(sum(payload))+" x"),
		"not allowed":    has("ACL SETUSER default -@all +ping +acl"),
		"no such script": has("ACL SETUSER default -evalsha -lpush"),
		"no memory":      has("CONFIG SET client-query-buffer-limit 1mb"),
		"killed":         func(_ *testing.T, s *redistest.Server, _ *redistest.Link) { s.Kill() },
		"no answer":      func(_ *testing.T, _ *redistest.Server, link *redistest.Link) { link.LoseRepliesTo(payload, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &diary{}
			server := redistest.Start(t)
			link := redistest.NewLink(t, server.Addr())
			p := sure(worqr.Open(link.URL(), &worqr.Options{Prefix: "p", Lease: time.Hour, MaxPayload: 4 << 20, Logger: d.logger()}))(t)
			q := working(t, p, "q")
			enqueue(t, q, payload, payload, payload, payload)
			tasks := sure(q.StartTasks(t.Context(), 3))(t)
			spoil(t, server, link)
			ctx, end := context.WithTimeout(t.Context(), 3*time.Second) // for calls that are repeated
			defer end()
			large := 1
			if name == "no memory" {
				large = 300_000 // repetitions
			}
			tasks[0].Result = []byte(payload)
			_, once := q.EnqueueOnce(ctx, "nonce", []byte(payload))
			_, at := q.Add(ctx, worqr.TaskSpec{Payload: []byte(payload), At: time.Now()})
			_, cancel := q.Cancel(ctx, []byte(payload))
			errs := []error{
				once, at, cancel, q.Enqueue(ctx, []byte(payload)), failure(q.Add(ctx, worqr.TaskSpec{Payload: []byte(payload), Unique: true})), failure(q.Add(ctx, worqr.TaskSpec{Key: "k", Payload: []byte(payload)})),
				q.Enqueue(ctx, bytes.Repeat([]byte(payload), large)),
				tasks[0].Finish(ctx), tasks[1].Retry(ctx, 0), tasks[2].Fail(ctx, errors.New("no")),
			}
			some := false
			for _, err := range errs {
				d.print(err)
				some = some || err != nil && !is_(err, worqr.ErrInvalid)
			}
			if !some {
				t.Error("nothing is refused")
			}
			d.print(p.Close())
			d.keeps(t, payload)
		})
	}
}

// has returns a function that runs commands on a server.
func has(commands ...string) func(*testing.T, *redistest.Server, *redistest.Link) {
	return func(t *testing.T, s *redistest.Server, _ *redistest.Link) {
		c := redistest.Dial(t, s.URL())
		for _, cmd := range commands {
			words := strings.Fields(cmd)
			redistest.Do(t, c, words[0], redis.Args{}.AddFlat(words[1:])...)
		}
	}
}

func sum(payload string) []byte {
	s := sha1.Sum([]byte(payload))
	return s[:]
}
