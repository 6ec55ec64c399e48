package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/worqr/worqr"
	worqrprom "github.com/worqr/worqr/contrib/prometheus"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A ward is a fleet in which something goes wrong.
type ward struct {
	t      *testing.T
	server *redistest.Server
	prefix string
	urls   []string    // of metrics
	peer   *worqr.Peer // an observer
	page   string      // its dashboard
}

// admit opens a peer and exports its metrics.
func (w *ward) admit(url string, opts worqr.Options, check time.Duration) *worqr.Peer {
	w.t.Helper()
	m := worqrprom.New(&worqrprom.Options{CheckEvery: check})
	opts.Prefix, opts.Trace = w.prefix, m.Trace()
	p := peertest.OpenAt(w.t, url, opts)
	m.Watch(p)
	w.export(m)
	return p
}

func (w *ward) export(m *worqrprom.Metrics) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m)
	at := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	w.t.Cleanup(at.Close)
	w.urls = append(w.urls, at.URL)
}

// worker runs a peer that serves the queue.
func (w *ward) worker(opts worqr.Options, handle worqr.Handler, h *worqr.HandleOptions) *worqr.Queue {
	w.t.Helper()
	p := w.admit(w.server.URL(), opts, 0)
	q := p.Queue("emails")
	q.Handle(handle, h)
	peertest.Run(w.t, p)
	eventually(w.t, "it's ready", func() bool { return p.Ready() == nil })
	return q
}

func (w *ward) scrape() map[string][]sample {
	all := map[string][]sample{}
	for _, url := range w.urls {
		for name, some := range scrape(w.t, url) {
			all[name] = append(all[name], some...)
		}
	}
	return all
}

func (w *ward) send(payload string, n int) {
	w.t.Helper()
	for range n {
		redistest.Sure(w.peer.Queue("emails").Add(w.t.Context(), worqr.TaskSpec{Payload: []byte(payload)}))(w.t)
	}
}

// known waits until the dashboard has read the queue, since it measures growth from its first reading.
func (w *ward) known() {
	w.t.Helper()
	eventually(w.t, "the dashboard knows the queue", func() bool { return strings.Contains(w.look(), "queue?name=emails") })
}

// look returns the first page of the dashboard.
func (w *ward) look() string {
	w.t.Helper()
	answer := redistest.Sure(http.Get(w.page))(w.t)
	defer func() { _ = answer.Body.Close() }()
	return html.UnescapeString(string(redistest.Sure(io.ReadAll(answer.Body))(w.t)))
}

func done(context.Context, *worqr.Task) error { return nil }

// A failure is caused on purpose, and must be explained.
type failure struct {
	early func(w *ward) // changes the observer's options
	stage func(w *ward)
	// then is called once the banner and the finding have been seen.
	then   func(w *ward)
	banner []string // on the dashboard: what is wrong, and what to do
	kind   string   // of the finding of worqr check; "" if it can't check
	flags  []string // of worqr check
	says   string   // the advice in the finding, or in the error
	alert  string
}

// ofQueues are failures of queues and handlers.
func ofQueues() map[string]failure {
	return map[string]failure{
		"no worker": {stage: func(w *ward) { w.send("x", 2) },
			banner: []string{"No worker", "Start the service that handles it"}, kind: "no-worker", says: "Start the service", alert: "WorqrQueueNotServed"},
		"paused": {stage: func(w *ward) {
			q := w.worker(worqr.Options{}, done, nil)
			peertest.Must(w.t, q.Pause(w.t.Context()))
			w.send("x", 2)
		}, banner: []string{"Paused", "Resume it, unless"}, kind: "paused", says: "Resume", alert: "WorqrQueuePaused"},
		"stuck handler": {stage: func(w *ward) {
			never := make(chan struct{})
			w.worker(worqr.Options{Name: "api-1"}, func(context.Context, *worqr.Task) error { <-never; return nil },
				&worqr.HandleOptions{Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond, MaxRetries: -1})
			w.t.Cleanup(func() { close(never) })
			w.send("x", 1)
		}, banner: []string{"Stuck handlers", "api-1", "restart it"}, kind: "stuck-handler", says: "estart", alert: "WorqrStuckHandlers"},
		"poison payload": {stage: func(w *ward) {
			w.worker(worqr.Options{}, func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no such mailbox")) }, nil)
			w.known()
			w.send("x", 20)
		}, banner: []string{"Tasks are failing", "Fix the cause, then requeue"}, kind: "failing", says: "equeue", alert: "WorqrTasksFail"},
		"retry storm": {stage: func(w *ward) {
			w.worker(worqr.Options{}, func(context.Context, *worqr.Task) error { return errors.New("the mail server is away") },
				&worqr.HandleOptions{MaxRetries: 9, Backoff: func(*worqr.Task, error) time.Duration { return time.Hour }})
			w.send("x", 300)
		}, banner: []string{"waiting for a retry", "300 tasks: the mail server is away"}, kind: "retrying", says: "the mail server is away", alert: "WorqrRetryStorm"},
		"growing backlog": {stage: func(w *ward) {
			hold := make(chan struct{})
			w.worker(worqr.Options{}, func(context.Context, *worqr.Task) error { <-hold; return nil }, &worqr.HandleOptions{Concurrency: 1})
			w.t.Cleanup(func() { close(hold) })
			w.known()
			payloads := make([][]byte, 3000)
			peertest.Must(w.t, w.peer.Queue("emails").Enqueue(w.t.Context(), payloads...))
		}, banner: []string{"backlog is large", "all workers are busy", "Add workers"}, kind: "backlog", flags: []string{"--max-waiting", "1000"}, says: "dd workers", alert: "WorqrBacklogGrows"},
	}
}

// ofFleets are failures of Redis and of workers.
func ofFleets() map[string]failure {
	return map[string]failure{
		"wrong password": {early: func(w *ward) {
			w.urls = nil
			wrong := "redis://worker:rotated@" + w.server.Addr()
			w.peer = redistest.Sure(worqr.Open(wrong, nil))(w.t)
			w.t.Cleanup(func() { _ = w.peer.Close() })
			m := worqrprom.New(nil)
			m.Watch(w.peer)
			w.export(m)
		}, banner: []string{"Redis refuses the login", "Check the user and the password"}, flags: []string{"--url", "wrong"}, says: "WRONGPASS", alert: "WorqrDenied"},
		"eviction policy": {stage: func(w *ward) {
			w.worker(worqr.Options{}, done, nil) // it wouldn't start afterwards
			c := redistest.Dial(w.t, w.server.URL())
			redistest.Do(w.t, c, "CONFIG", "SET", "maxmemory", "100mb")
			redistest.Do(w.t, c, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		}, banner: []string{"Redis may evict tasks", "noeviction"}, kind: "eviction-policy", says: "noeviction", alert: "WorqrEvictionPolicy"},
		"dead peer": {stage: func(w *ward) {
			peertest.Dead(w.t, redistest.Dial(w.t, w.server.URL()), w.prefix, "emails", time.Second, 1)
			w.send("x", 1)
		}, then: func(w *ward) {
			q := w.worker(worqr.Options{}, done, nil)
			eventually(w.t, "it's evicted", func() bool { return peertest.Stats(w.t, q).Workers == 1 })
		}, banner: []string{"No worker", "1 worker stopped sending heartbeats. Start the service"}, kind: "no-worker", says: "Start the service", alert: "WorqrWorkerEvicted"},
		"all peers dead": {stage: func(w *ward) {
			peertest.Dead(w.t, redistest.Dial(w.t, w.server.URL()), w.prefix, "emails", time.Second, 1)
			w.send("x", 1)
		}, banner: []string{"No worker", "1 worker stopped sending heartbeats. Start the service"}, kind: "no-worker", says: "Start the service", alert: "WorqrQueueNotServed"},
		"two leases": {stage: func(w *ward) {
			w.worker(worqr.Options{Lease: 3 * time.Second}, done, nil)
			w.worker(worqr.Options{Lease: 10 * time.Second}, done, nil)
		}, banner: []string{"different leases", "lease"}, kind: "leases", says: "lease", alert: "WorqrLeasesDiffer"},
	}
}

// The dashboard, the command line and the metrics of an alert show what is wrong and what to do, for eleven failures that
// peers and Redis really have.
func TestFailures(t *testing.T) {
	t.Parallel()
	cli := filepath.Join(t.TempDir(), "worqr")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", cli, "github.com/worqr/worqr/cmd/worqr").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("all", func(t *testing.T) { // waits for all of them; the program runs until then
		all := ofQueues()
		maps.Copy(all, ofFleets())
		for name, f := range all {
			t.Run(name, func(t *testing.T) { t.Parallel(); f.run(t, cli) })
		}
	})
	eventually(t, "the loops of the dashboards end", func() bool { // some seconds after the last stream
		stacks := make([]byte, 1<<22)
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("dash.(*hub).loop"))
	})
}

func (f *failure) run(t *testing.T, cli string) {
	w := &ward{t: t, server: redistest.Start(t), prefix: "worqr"}
	doctor := redistest.Doctor(t, w.server.URL(), w.prefix)
	w.peer = w.admit(doctor, worqr.Options{}, 0)
	if f.early != nil {
		f.early(w)
	}
	server := httptest.NewServer(dash.New(w.peer, &dash.Options{Interval: 200 * time.Millisecond, Check: &inspect.CheckOptions{}}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	w.page = server.URL + "/"
	f.watch(w)
	f.inquire(w, cli)
	if f.kind != "" {
		w.admit(doctor, worqr.Options{}, time.Second) // checks once it's scraped
	}
	if f.then != nil {
		f.then(w)
	}
	rule := alerts(t)[slices.IndexFunc(alerts(t), func(a alert) bool { return a.Alert == f.alert })]
	eventually(t, f.alert+" has something to tell", func() bool {
		metrics := w.scrape()
		return slices.ContainsFunc(selector.FindAllStringSubmatch(rule.Expr, -1), func(m []string) bool {
			return slices.ContainsFunc(chosen(metrics[m[1]], m[2]), func(s sample) bool { return s.value > 0 })
		})
	})
	if rule.Annotations["summary"] == "" || !strings.Contains(read(t, deploy+"runbooks/"+f.alert+".md"), "## Look first") {
		t.Errorf("%s doesn't say what to do", f.alert)
	}
}

// watch opens the dashboard, causes the failure, and waits for the banner.
func (f *failure) watch(w *ward) {
	w.t.Helper()
	ctx, end := context.WithCancel(w.t.Context())
	w.t.Cleanup(end)
	r := redistest.Sure(http.NewRequestWithContext(ctx, http.MethodGet, w.page+"stream?show=overview", nil))(w.t)
	stream := redistest.Sure(http.DefaultClient.Do(r))(w.t) // so that it has a history
	w.t.Cleanup(func() { _ = stream.Body.Close() })
	first := make([]byte, 1)
	redistest.Sure(stream.Body.Read(first))(w.t)
	if f.stage != nil {
		f.stage(w)
	}
	eventually(w.t, fmt.Sprintf("the dashboard says %q", f.banner), func() bool {
		text := w.look()
		for _, want := range f.banner {
			if !strings.Contains(strings.ReplaceAll(strings.ToLower(text), "’", "'"), strings.ToLower(want)) {
				return false
			}
		}
		return true
	})
}

// inquire runs worqr check.
func (f *failure) inquire(w *ward, cli string) {
	w.t.Helper()
	url, args := w.server.URL(), []string{"check", "--json"}
	if f.kind == "" {
		url = "redis://worker:rotated@" + w.server.Addr()
	} else {
		args = append(args, f.flags...)
	}
	var said []byte
	eventually(w.t, "worqr check finds "+f.kind, func() bool {
		c := exec.CommandContext(w.t.Context(), cli, args...)
		c.Env = append(c.Environ(), "REDIS_URL="+url)
		var errs bytes.Buffer
		c.Stderr = &errs
		said, _ = c.Output() // its exit status depends on the findings
		if f.kind == "" {
			return strings.Contains(errs.String(), f.says)
		}
		var report struct {
			Findings []struct{ Kind, Text, Fix string }
		}
		if json.Unmarshal(said, &report) != nil {
			return false
		}
		for _, found := range report.Findings {
			if found.Kind == f.kind {
				if !strings.Contains(found.Text+found.Fix, f.says) {
					w.t.Errorf("%s doesn't say what to do: %s %s", f.kind, found.Text, found.Fix)
				}
				return true
			}
		}
		return false
	})
}

// eventually waits for something that needs a few heartbeats or a minute of history.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(50 * time.Millisecond) { // polls
		if time.Now().After(end) {
			t.Fatal("timed out: ", what)
		}
	}
}
