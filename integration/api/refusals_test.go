package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// The ways in which a server or a proxy refuses a command.
const (
	denied  = "NOPERM"   // the user may not run it
	renamed = "renamed"  // rename-command to "", so it's unknown, even to scripts
	errs    = "an error" // a proxy returns its own error
	hangsUp = "hangs up" // a proxy closes the connection
)

// A refusal is a command that peers use, and what still works if a server refuses it.
type refusal struct {
	command string
	scripts bool   // only scripts use it, so a proxy can't refuse it
	want    string // the outcome; but has others, by way
	but     map[string]string
}

// Outcomes.
const (
	allWorks  = "tasks cancels events all-events listings check; 0 warnings"
	partly    = "tasks cancels events all-events listings check-in-part; 0 warnings"
	unchecked = "tasks cancels events all-events listings; 0 warnings"
)

// refusals are the rows of the table in docs/operations.md.
var refusals = []refusal{
	{command: "SUBSCRIBE", want: "tasks cancels all-events listings check; 1 warnings",
		but: map[string]string{hangsUp: "tasks cancels listings check; 1 warnings"}},
	{command: "PSUBSCRIBE", want: "tasks cancels events listings check; 1 warnings",
		but: map[string]string{hangsUp: "tasks cancels events listings check; 0 warnings"}}, // one failure, not logged
	{command: "PUBLISH", scripts: true, want: allWorks},
	{command: "PUBSUB", scripts: true, want: allWorks},
	{command: "TIME", want: "; 2 warnings", // it can't join, and enqueues are refused
		but: map[string]string{errs: "tasks cancels events all-events; 0 warnings", hangsUp: "tasks cancels events all-events; 0 warnings"}},
	{command: "SCAN", want: unchecked},
	{command: "INFO", want: partly, but: map[string]string{hangsUp: unchecked}},
	{command: "CONFIG", want: partly, but: map[string]string{hangsUp: unchecked}},
	{command: "SELECT", want: "starts not"},
	{command: "ECHO", want: allWorks},
	{command: "CLIENT", want: allWorks},
	{command: "SCRIPT", want: allWorks},
	{command: "ROLE", want: allWorks},
}

// TestRefusals checks what still works if a server refuses a command, and that a peer logs at most
// one warning.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, r := range refusals {
		for _, way := range []string{denied, renamed, errs, hangsUp} {
			if r.scripts && (way == errs || way == hangsUp) {
				continue
			}
			t.Run(r.command+"/"+way, func(t *testing.T) {
				t.Parallel()
				redistest.OneServer(t, "it has users, servers and proxies of its own that refuse one command each")
				prefix := redistest.Prefix(t)
				url, proxy := r.url(t, way, prefix)
				if r.command == "SELECT" {
					url += "/1"
				}
				want := r.want
				if w, ok := r.but[way]; ok {
					want = w
				}
				began := time.Now()
				if got := r.outcome(t, url, prefix); got != want {
					t.Errorf("%s\nwant %s", got, want)
				}
				// A peer tries to subscribe three times, and then every 2.5 to 5 s.
				if way == hangsUp && r.command == "SUBSCRIBE" {
					if n, most := proxy.Refused(), 3+int(time.Since(began)/(2500*time.Millisecond)); n > most {
						t.Errorf("%d connections subscribed, want at most %d", n, most)
					}
				}
			})
		}
	}
}

// url returns the URL of a server or proxy that refuses the command.
func (r refusal) url(t *testing.T, way, prefix string) (url string, proxy *redistest.Proxy) {
	user := func(url, name string) string { return strings.Replace(url, "redis://", "redis://"+name+":pw@", 1) }
	switch way {
	case denied:
		conn := redistest.Conn(t)
		redistest.Do(t, conn, "ACL", "SETUSER", prefix, "on", ">pw", "~*", "&*", "+@all", "-"+strings.ToLower(r.command))
		t.Cleanup(func() { _, _ = conn.Do("ACL", "DELUSER", prefix) })
		return user(redistest.URL(), prefix), nil
	case renamed:
		return user(redistest.Start(t, "--rename-command", r.command, "").URL(), "default"), nil
	}
	proxy = redistest.NewProxy(t, strings.TrimPrefix(redistest.URL(), "redis://"), r.command, way == hangsUp)
	return user(proxy.URL(), "default"), proxy
}

// outcome returns what a peer can do there.
func (r refusal) outcome(t *testing.T, url, prefix string) string {
	said := &journal{}
	opts := worqr.Options{Prefix: prefix, Logger: said.Logger()}
	p := sure(worqr.Open(url, &opts))(t)
	if r.command == "ECHO" { // only a pool sends it
		p = worqr.New(&redis.Pool{MaxIdle: 4, DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialURLContext(ctx, url) }}, &opts)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.StartWorker(t.Context()); err != nil {
		t.Log(err)
		return "starts not"
	}
	var works []string
	can := func(what string, err error) {
		if err != nil {
			t.Logf("%s: %v", what, err)
			return
		}
		works = append(works, what)
	}

	ran, stopped := make(chan string, 10), make(chan error, 10)
	q := p.Queue("q")
	q.Handle(func(ctx context.Context, task *worqr.Task) error {
		ran <- string(task.Payload)
		if string(task.Payload) == "held" {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return ctx.Err()
		}
		return nil
	}, nil)
	stop := run(t, p)
	tasks := func() error {
		err := errors.Join(q.Enqueue(t.Context(), []byte("a")), failure(q.Add(t.Context(), worqr.TaskSpec{Key: "key", Payload: []byte("b")})), failure(q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("c"), Unique: true})))
		if err == nil {
			receive(t, ran, 3)
		}
		return err
	}
	can("tasks", tasks())
	cancels := func() error {
		if err := q.Enqueue(t.Context(), []byte("held")); err != nil {
			return err
		}
		receive(t, ran, 1)
		report, err := q.Cancel(t.Context(), []byte("held"))
		if err != nil {
			return err
		}
		if why := receive(t, stopped, 1)[0]; !is_(why, worqr.ErrCanceled) {
			return why
		}
		return report.Wait(t.Context())
	}
	if len(works) == 0 {
		eventually(t, "a warning says so", func() bool { return len(said.Lines("level=WARN")) > 0 }) // from a heartbeat
		return r.ended(t, p, stop, said, works)
	}
	can("cancels", cancels())
	events := func(of ...string) error {
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for e, err := range p.Events(ctx, of...) {
			if err == nil && e.Kind != inspect.EventSync {
				err = fmt.Errorf("%s is the first event", e.Kind)
			}
			return err
		}
		return errors.New("no events")
	}
	can("events", events("q"))
	can("all-events", events())
	listings := func() error {
		_, err := length(q.Named(t.Context()))
		_, also := length(p.Workers(t.Context()))
		_, stats := q.Stats(t.Context())
		_, explained := q.Explain(t.Context(), worqr.Query{Payload: []byte("a")})
		return errors.Join(err, also, stats, explained)
	}
	can("listings", listings())
	report, err := p.Check(t.Context(), nil)
	if err == nil && count(report, "not-permitted") > 0 {
		can("check-in-part", nil)
	} else {
		can("check", err)
	}
	return r.ended(t, p, stop, said, works)
}

// ended stops the peer, and adds the number of its warnings.
func (r refusal) ended(t *testing.T, p *worqr.Peer, stop func(), said *journal, works []string) string {
	if r.command == "SUBSCRIBE" { // if the server hangs up, the peer says so after the third try
		eventually(t, "the warning is logged", func() bool { return len(said.Lines("level=WARN")) > 0 })
	}
	stop()
	must(t, p.Close())
	warnings := 0
	for _, level := range []string{"level=WARN", "level=ERROR"} {
		for _, line := range said.Lines(level) {
			t.Log(strings.TrimSpace(line))
			warnings++
		}
	}
	return fmt.Sprintf("%s; %d warnings", strings.Join(works, " "), warnings)
}
