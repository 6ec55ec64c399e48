package worqrprom

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func documented(t testing.TB) (names []string) {
	t.Helper()
	text, err := os.ReadFile("metrics.go")
	peertest.Must(t, err)
	for _, m := range regexp.MustCompile(`(?m)^//\t(worqr_[a-z_]+)(?:\{[a-z,]+\})?(?: |$)`).FindAllSubmatch(text, -1) {
		names = append(names, string(m[1]))
	}
	slices.Sort(names)
	return names
}

// Without Redis the state of queues is missing, and the rest is exported.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	m := New(&Options{Queues: []string{"q", "q"}, Timeout: time.Second})
	p := peertest.OpenAt(t, server.URL(), worqr.Options{CallTimeout: time.Second, Trace: m.Trace()})
	m.Watch(p)
	r := registered(t, m)
	got := gathered(t, r)
	is.Equal(got["worqr_queues_readable"], 1.)
	is.Equal(got[`worqr_queue_waiting_tasks{queue="q"}`], 0.)
	server.Kill()
	m.state.at = time.Time{} // as if it were read a second ago
	got = gathered(t, r)
	is.Equal(got["worqr_queues_readable"], 0.)
	is.Equal(got["worqr_ready"], 0.)
	_, there := got[`worqr_queue_waiting_tasks{queue="q"}`]
	is.True(!there) // rather than 0
	defer func() {
		if recover() == nil {
			t.Error("a second Watch doesn't panic")
		}
	}()
	m.Watch(p)
}

// Findings of a check are exported by kind, after the first scrape, and checks run no more often than
// configured. A refused login is distinguished from a Redis that doesn't answer.
func TestFindings(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	p := peertest.OpenDoctor(t, server.URL(), worqr.Options{Prefix: redistest.Prefix(t)})
	peertest.Enqueue(t, p.Queue("q"), "a", "b")
	m := New(&Options{CheckEvery: time.Hour})
	m.Watch(p)
	const found = `worqr_findings{kind="no-worker",severity="stopped"}`
	got := func() map[string]float64 { return gathered(t, registered(t, m)) }
	peertest.Eventually(t, "the check has found that nobody serves the queue", func() bool { return got()[found] == 1 })
	is.NoErr(p.Queue("q").Delete(t.Context()))
	is.Equal(got()[found], 1.) // for an hour
	is.True(got()["worqr_last_check_timestamp_seconds"] > 0)
	is.Equal(got()["worqr_denied"], 0.)

	for _, opts := range []*Options{nil, {NoQueues: true}} {
		refused := redistest.Sure(worqr.Open("redis://nobody:wrong@"+server.Addr(), nil))(t)
		t.Cleanup(func() { _ = refused.Close() })
		m = New(opts)
		m.Watch(refused)
		values := got()
		is.Equal(values["worqr_denied"], 1.)
		_, checks := values["worqr_last_check_timestamp_seconds"]
		is.True(!checks) // only if configured
	}
	away := redistest.Sure(worqr.Open("redis://127.0.0.1:1", &worqr.Options{CallTimeout: time.Second}))(t)
	t.Cleanup(func() { _ = away.Close() })
	m = New(&Options{Timeout: 2 * time.Second})
	m.Watch(away)
	is.Equal(got()["worqr_denied"], 0.)
}

// A damaged queue, or one on a node that doesn't answer, is missing; the others are there.
func TestSomeUnreadable(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := redistest.StartCluster(t, 2, 0, "--cluster-require-full-coverage", "no")
	p := peertest.OpenAt(t, c.URL(), worqr.Options{Prefix: "p"})
	m := New(&Options{Timeout: 2 * time.Second})
	m.Watch(p)
	r := registered(t, m)
	frozen := c.Nodes[0]
	if c.Owner(t, c.Slot(t, "p:registry")) == frozen {
		frozen = c.Nodes[1]
	}
	there := map[string]bool{}
	for i := range 40 { // more than are read at once on either node
		name := fmt.Sprint("queue-", i)
		peertest.Enqueue(t, p.Queue(name), "x")
		there[name] = c.Owner(t, c.Slot(t, "{"+name+"}")) != frozen
		if i == 7 {
			redistest.Do(t, c.Dial(t), "SET", "p:workers:{"+name+"}", "x")
			there[name] = false
		}
	}
	frozen.Pause(t)
	defer frozen.Resume(t)
	got := gathered(t, r)
	is.Equal(got["worqr_queues_readable"], 0.)
	for name, want := range there {
		_, read := got[`worqr_queue_waiting_tasks{queue="`+name+`"}`]
		is.Equal(read, want)
	}
}
