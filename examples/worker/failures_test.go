package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/gomodule/redigo/redis"
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
	url    string // of the server, for the observer and worqr check
	prefix string
	urls   []string    // of metrics
	peer   *worqr.Peer // an observer
	page   string      // its dashboard
	cli    string      // the program worqr
	cut    func()      // its connections
	log    peertest.Journal

	over    chan struct{} // closed at the end of the test
	release func()
}

// admit opens a peer and exports its metrics.
func (w *ward) admit(url string, opts worqr.Options, check time.Duration) *worqr.Peer {
	w.t.Helper()
	m := worqrprom.New(&worqrprom.Options{CheckEvery: check})
	opts.Prefix, opts.Trace, opts.Logger = w.prefix, m.Trace(), w.log.Logger()
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
	w.run(p)
	return q
}

func (w *ward) run(p *worqr.Peer) (stop func()) {
	w.t.Helper()
	stop = peertest.Run(w.t, p)
	w.t.Cleanup(w.release) // before Run ends
	eventually(w.t, "it's ready", func() bool { return p.Ready() == nil })
	return stop
}

// hangs returns a handler that doesn't return before the test ends, even if its context does.
func (w *ward) hangs() worqr.Handler {
	return func(context.Context, *worqr.Task) error { <-w.over; return nil }
}

func (w *ward) config(name, value string) {
	w.t.Helper()
	redistest.Do(w.t, redistest.Dial(w.t, w.server.URL()), "CONFIG", "SET", name, value)
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

// A failure is caused on purpose, and must be explained: the texts are what's said first.
type failure struct {
	early  func(w *ward) // changes the observer
	stage  func(w *ward)
	then   func(w *ward) // called once the banner and the finding have been seen
	limits inspect.CheckOptions
	banner string   // the first on the dashboard: its title, its queues and the beginning of its text
	flags  []string // of worqr check
	check  string   // how its first line begins, or its error
	log    string   // in a line of a peer
	step   string   // in both
	alert  string
	none   bool // the alert is about a metric that is 0
}

var soon = inspect.CheckOptions{MaxWaitTime: time.Second}

// ofQueues are failures of queues and handlers.
func ofQueues() map[string]failure {
	return map[string]failure{
		"no worker": {stage: func(w *ward) { w.send("x", 2) },
			banner: "No worker emails 2 tasks are waiting, and no worker serves this queue. Start the service that handles it. Workers",
			check:  "stopped (no-worker) on emails: 2 tasks are waiting, and no worker serves this queue. Start the service that handles it.", alert: "WorqrQueueNotServed"},
		"paused": {stage: func(w *ward) {
			q := w.worker(worqr.Options{Name: "deploy-7"}, done, nil)
			peertest.Must(w.t, q.Pause(w.t.Context()))
			w.send("x", 2)
		}, banner: "Paused emails 2 tasks are waiting, and the queue is paused. Paused by deploy-7 at 2",
			check: "notice (paused) on emails: 2 tasks are waiting, and the queue is paused. Paused by deploy-7 at 2", alert: "WorqrQueuePaused"},
		"stuck handler": {stage: func(w *ward) {
			w.worker(worqr.Options{Name: "api-1"}, w.hangs(), &worqr.HandleOptions{Timeout: 50 * time.Millisecond, Grace: 50 * time.Millisecond, MaxRetries: -1})
			w.send("x", 1)
		}, banner: "Stuck handlers 1 handler hasn't returned, though its attempt timed out or was stopped. Worker api-1 (pid ",
			check: "stuck (stuck-handler): 1 handler hasn't returned, though its attempt timed out or was stopped. Worker api-1 (pid ",
			log:   "a handler didn't return after its context ended", alert: "WorqrStuckHandlers"},
		"tasks fail": {stage: func(w *ward) {
			w.worker(worqr.Options{}, func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no such mailbox")) }, nil)
			w.known()
			w.send("x", 20)
		}, banner: "Tasks are failing emails 20 tasks have failed for good, far more than usual.",
			check: "stuck (failing) on emails (failed): 20 tasks have failed for good, far more than usual.", step: " The last errors: \"no such mailbox\" (20 tasks). ", log: "task failed for good", alert: "WorqrTasksFail"},
		"retry storm": {stage: func(w *ward) {
			w.worker(worqr.Options{}, func(context.Context, *worqr.Task) error { return errors.New("the mail server is away") },
				&worqr.HandleOptions{MaxRetries: 9, Backoff: func(*worqr.Task, error) time.Duration { return time.Hour }})
			w.send("x", 300)
		}, banner: "Many tasks are retried emails 300 tasks are waiting for a retry. The last errors: \"the mail server is away\" (300 tasks). They retry by themselves; fix what makes them fail.",
			check: "stuck (retrying) on emails: 300 tasks are waiting for a retry. The last errors: \"the mail server is away\" (300 tasks). They retry by themselves; fix what makes them fail.",
			log:   "task failed and will be retried", alert: "WorqrRetryStorm"},
		"poison payload": {stage: func(w *ward) {
			w.send("x", 1)
			for _, name := range []string{"api-1", "api-2"} {
				c := exec.CommandContext(w.t.Context(), w.cli, "work", "emails", "--redis", w.server.URL(), "--prefix", w.prefix, "--lease", "1s", "--name", name, "--", "sh", "-c", "kill -9 $PPID")
				if out, err := c.CombinedOutput(); err == nil || err.Error() != "signal: killed" {
					w.t.Errorf("the worker ended with %v: %s", err, out)
				}
			}
			w.worker(worqr.Options{Name: "api-3", Lease: time.Second}, w.hangs(), nil)
		}, banner: "A task may crash its workers emails 1 task was held by several workers that died, hung or lost their connection to Redis. So far, that was 2 workers.",
			check: "stuck (crashing) on emails: 1 task was held by several workers that died, hung or lost their connection to Redis. So far, that was 2 workers.", log: "evicted a worker whose lease expired", alert: "WorqrTaskCrashes"},
		"slots hang": {stage: func(w *ward) {
			w.worker(worqr.Options{}, w.hangs(), &worqr.HandleOptions{Concurrency: 1, Prefetch: -1})
			w.send("x", 3)
		}, limits: soon, flags: []string{"--max-age", "1s"}, banner: "Nothing starts emails 2 tasks are waiting, every slot is busy, and none becomes free. Nothing has started for ",
			check: "stopped (stalled) on emails: 2 tasks are waiting, every slot is busy, and none becomes free. Nothing has started for ", alert: "WorqrStalled"},
		"a queue starves": {stage: func(w *ward) {
			p := w.admit(w.server.URL(), worqr.Options{Capacity: 1}, 0)
			p.Queue("images").Handle(w.hangs(), nil)
			p.Queue("emails").Handle(done, nil)
			w.run(p)
			redistest.Sure(w.peer.Queue("images").Add(w.t.Context(), worqr.TaskSpec{Payload: []byte("x")}))(w.t)
			eventually(w.t, "it's busy", func() bool { return peertest.Stats(w.t, w.peer.Queue("images")).Running == 1 })
			w.send("x", 3)
		}, limits: soon, flags: []string{"--max-age", "1s"}, banner: "A queue gets no slot emails 3 tasks are waiting on this queue, nothing runs there, and no worker has room: other queues use up its Capacity.",
			check: "stuck (starved) on emails: 3 tasks are waiting on this queue, nothing runs there, and no worker has room: other queues use up its Capacity.", alert: "WorqrStalled"},
		"growing backlog": {early: func(w *ward) {
			w.worker(worqr.Options{}, w.hangs(), &worqr.HandleOptions{Concurrency: 1, Prefetch: -1})
			w.send("x", 1)
			eventually(w.t, "the task runs", func() bool { return peertest.Stats(w.t, w.peer.Queue("emails")).Running == 1 })
		}, stage: func(w *ward) {
			w.known()
			payloads := make([][]byte, 3000)
			peertest.Must(w.t, w.peer.Queue("emails").Enqueue(w.t.Context(), payloads...))
		}, banner: "The backlog is large emails 3,000 tasks are waiting. That's 3,000 more than ", flags: []string{"--max-waiting", "1000"},
			check: "stuck (backlog) on emails: 3,000 tasks are waiting. The limit is 1000. Find out", alert: "WorqrBacklogGrows"},
		"a recurring task fails": {stage: func(w *ward) {
			p := w.admit(w.server.URL(), worqr.Options{}, 0)
			p.Queue("emails").Handle(func(context.Context, *worqr.Task) error { return worqr.Permanent(errors.New("no disk")) }, nil)
			peertest.Must(w.t, p.Queue("emails").Every("nightly", worqr.Interval(20*time.Second), nil, nil))
			w.run(p)
		}, banner: "A recurring task fails emails The last run of 1 recurring task didn't succeed. nightly, due at ",
			check: "stuck (job-failed) on emails: The last run of 1 recurring task didn't succeed. nightly, due at ", step: ", failed: \"no disk\". ", log: "task failed for good", alert: "WorqrRecurringTask"},
		"a recurring task is gone": {stage: func(w *ward) {
			p := w.admit(w.server.URL(), worqr.Options{Lease: time.Second}, 0)
			p.Queue("emails").Handle(done, nil)
			peertest.Must(w.t, p.Queue("emails").Every("nightly", worqr.Interval(24*time.Hour), nil, nil))
			stop := w.run(p)
			w.worker(worqr.Options{Lease: time.Second}, done, nil)
			stop()
		}, banner: "A recurring task is gone emails 1 recurring task doesn't run anymore, since no running peer has its schedule. The schedule of nightly ended ",
			check: "risk (job-gone) on emails: 1 recurring task doesn't run anymore, since no running peer has its schedule. The schedule of nightly ended ", log: "schedules ended: no running peer has them", alert: "WorqrRecurringTask"},
	}
}

// ofFleets are failures of Redis and of workers.
func ofFleets() map[string]failure {
	return map[string]failure{
		"wrong password": {early: func(w *ward) { w.observe("redis://worker:rotated@" + w.server.Addr()) },
			banner: "Redis refuses the login 127.0.0.1:", check: "worqr: check: login refused: ", alert: "WorqrDenied"},
		"Redis is down": {stage: func(w *ward) { w.server.Kill() },
			banner: "Redis can't be reached Nothing listens at 127.0.0.1:", check: "worqr: check: ", step: ": start Redis.", alert: "WorqrQueuesUnreadable", none: true},
		"the network drops": {early: func(w *ward) {
			link := redistest.NewLink(w.t, w.server.Addr())
			w.observe(link.URL())
			w.cut = func() { link.Mute(true); link.Deafen(true) }
		}, stage: func(w *ward) { w.cut() },
			banner: "Redis can't be reached 127.0.0.1:", check: "worqr: check: ", step: " doesn't answer: Redis hangs, or the network drops packets. Look at its process, then at the network.", alert: "WorqrQueuesUnreadable", none: true},
		"Redis is slow": {early: func(w *ward) { w.observe(redistest.Far(w.t, w.server.Addr(), 300*time.Millisecond).URL()) },
			stage:  func(w *ward) { w.worker(worqr.Options{}, done, nil) },
			banner: "Redis is slow Redis took 3", check: "risk (slow-redis): Redis took 3", alert: "WorqrRedisSlow"},
		"a full Redis": {stage: func(w *ward) {
			w.worker(worqr.Options{}, done, nil)
			w.config("maxmemory", "1mb")
			if err := w.peer.Queue("emails").Enqueue(w.t.Context(), make([]byte, 1000)); err == nil {
				w.t.Error("a full Redis takes a task")
			}
		}, banner: "Redis is full and refuses new tasks Redis uses ", check: "lost (full): Redis uses ", log: "Redis refuses new tasks", alert: "WorqrEnqueuesRefused"},
		"eviction policy": {stage: func(w *ward) {
			w.worker(worqr.Options{}, done, nil) // it wouldn't start afterwards
			w.config("maxmemory", "100mb")
			w.config("maxmemory-policy", "allkeys-lru")
		}, banner: "Redis may evict tasks The maxmemory-policy is allkeys-lru: a full Redis evicts tasks. Set it to noeviction.",
			check: "risk (eviction-policy): The maxmemory-policy is allkeys-lru: a full Redis evicts tasks. Set it to noeviction.", alert: "WorqrEvictionPolicy"},
		"a clock is wrong": {stage: func(w *ward) {
			p := peertest.OpenThrough(w.t, w.server.URL(), worqr.Options{Prefix: w.prefix, Name: "api-3", Logger: w.log.Logger()}, func(c *peertest.Through) redis.Conn {
				c.OnReply = ahead
				return c
			})
			m := worqrprom.New(nil)
			m.Watch(p)
			w.export(m)
			p.Queue("emails").Handle(done, nil)
			w.run(p)
		}, banner: "A clock is wrong 1 process has a clock that differs from Redis's by more than a second. That of api-3 (pid ",
			check: "risk (clock): 1 process has a clock that differs from Redis's by more than a second. That of api-3 (pid ", log: "this machine's clock differs from Redis's", alert: "WorqrClockOff"},
		"dead peer": {stage: func(w *ward) {
			w.worker(worqr.Options{Lease: time.Second}, done, nil)
			c := redistest.Dial(w.t, w.server.URL())
			redistest.Do(w.t, c, "HSET", w.prefix+":worker:dead00000", "name", "api-7", "host", "h", "pid", 7, "queues", `["emails"]`, "lease", 1000)
			redistest.Do(w.t, c, "PEXPIRE", w.prefix+":worker:dead00000", 60_000)
			peertest.Dead(w.t, c, w.prefix, "emails", time.Second, 1)
			eventually(w.t, "it's evicted", func() bool { return peertest.Stats(w.t, w.peer.Queue("emails")).Workers == 1 })
		}, banner: "Workers were evicted 1 worker died, hung or lost its connection to Redis, and its tasks went back to the queue. api-7, ",
			check: "notice (evicted): 1 worker died, hung or lost its connection to Redis, and its tasks went back to the queue. api-7, ", log: "evicted a worker whose lease expired", alert: "WorqrWorkerEvicted"},
		"all peers dead": {stage: func(w *ward) {
			peertest.Dead(w.t, redistest.Dial(w.t, w.server.URL()), w.prefix, "emails", time.Second, 19)
			w.send("x", 1)
		}, banner: "No worker emails 20 tasks are waiting, and no worker serves this queue. All 19 workers stopped sending heartbeats: their processes have ended, hang, or can't reach Redis. Start the service that handles it.",
			check: "stopped (no-worker) on emails: 20 tasks are waiting, and no worker serves this queue. All 19 workers stopped sending heartbeats: their processes have ended, hang, or can't reach Redis. Start the service that handles it.", alert: "WorqrQueueNotServed"},
		"a deploy changes the lease": {stage: func(w *ward) {
			w.worker(worqr.Options{Lease: 3 * time.Second}, done, nil)
			w.worker(worqr.Options{Lease: 10 * time.Second}, done, nil)
		}, banner: "Workers have different leases emails Workers of this queue have different leases. ",
			check: "risk (leases) on emails: Workers of this queue have different leases. ", alert: "WorqrLeasesDiffer"},
	}
}

// ahead changes the answers to heartbeats as if Redis's clock were behind by an hour.
func ahead(_ string, _ []any, reply any, err error) (any, error) {
	if pulse, ok := reply.([]any); ok && err == nil && len(pulse) == 8 {
		for i := range 2 {
			if at, ok := pulse[i].(int64); ok && at > 1e12 {
				pulse[i] = at - time.Hour.Milliseconds()
			}
		}
	}
	return reply, err
}

// observe makes another URL that of the observer.
func (w *ward) observe(url string) {
	w.t.Helper()
	w.urls, w.url = nil, url
	w.peer = redistest.Sure(worqr.Open(url, &worqr.Options{Prefix: w.prefix, CallTimeout: time.Second, Logger: w.log.Logger()}))(w.t)
	w.t.Cleanup(func() { _ = w.peer.Close() })
	m := worqrprom.New(&worqrprom.Options{CheckEvery: time.Second})
	m.Watch(w.peer)
	w.export(m)
}

// For each failure that peers and Redis really have, the dashboard and the command line say first what is wrong and what to
// do, the log has a line, and the metrics of an alert show it.
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
	w := &ward{t: t, server: redistest.Start(t, "--appendonly", "yes"), prefix: "worqr", cli: cli}
	w.over = make(chan struct{})
	w.release = sync.OnceFunc(func() { close(w.over) })
	w.url = redistest.Doctor(t, w.server.URL(), w.prefix)
	w.peer = w.admit(w.url, worqr.Options{}, time.Second) // it checks once it's scraped
	if f.early != nil {
		f.early(w)
	}
	server := httptest.NewServer(dash.New(w.peer, &dash.Options{Interval: 200 * time.Millisecond, Check: &f.limits}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	w.page = server.URL + "/"
	f.watch(w)
	f.inquire(w, cli)
	if f.then != nil {
		f.then(w)
	}
	if f.log != "" {
		eventually(t, "the log says "+f.log, func() bool { return len(w.log.Lines(f.log)) > 0 })
	}
	rule := alerts(t)[slices.IndexFunc(alerts(t), func(a alert) bool { return a.Alert == f.alert })]
	seen, metrics := sample{}, map[string][]sample{}
	eventually(t, f.alert+" has something to tell", func() bool {
		metrics = w.scrape()
		checked := !testing.Verbose() || strings.HasPrefix(f.check, "worqr: ") || total(metrics["worqr_last_check_timestamp_seconds"]) > 0
		return checked && slices.ContainsFunc(selector.FindAllStringSubmatch(rule.Expr, -1), func(m []string) bool {
			return slices.ContainsFunc(chosen(metrics[m[1]], m[2]), func(s sample) bool { seen = s; return (s.value != 0) != f.none })
		})
	})
	if rule.Annotations["summary"] == "" || !strings.Contains(read(t, deploy+"runbooks/"+f.alert+".md"), "## Look first") {
		t.Errorf("%s doesn't say what to do", f.alert)
	}
	if testing.Verbose() { // what a user reads: the log, f's alert, and others that need no history
		t.Logf("the log says\n%s", strings.Join(slices.Sorted(slices.Values(append(w.log.Lines("level=WARN"), w.log.Lines("level=ERROR")...))), ""))
		for _, a := range alerts(t) {
			m := append(regexp.MustCompile(`^(?:max[^_]*\()?(worqr_(?:findings|connected|denied|stuck_handlers|queues_readable|queue_paused))(?:\{(.*)\})?\)? (== 0|== 1|> 0)$`).FindStringSubmatch(a.Expr), "", "", "", "")
			for _, s := range slices.DeleteFunc(map[bool][]sample{true: {seen}, false: chosen(metrics[m[1]], m[2])}[m[1] == "" && a.Alert == f.alert], func(s sample) bool { return (s.value == 0) != (m[3] == "== 0") }) {
				peertest.Must(t, template.Must(template.New("").Parse("{{$labels := .L}}{{$value := .V}}alert "+a.Alert+": "+strings.ReplaceAll(a.Annotations["summary"], "humanize", `printf "%.4g"`)+"\n")).Execute(t.Output(), map[string]any{"L": s.labels, "V": s.value}))
			}
		}
	}
}

var (
	firstBanner = regexp.MustCompile(`(?s)<ul class="banners"[^>]*><li[^>]*>(.*?)</li>`)
	tags        = regexp.MustCompile(`<span class="spoken">[^<]*</span>|<[^>]*>`)
)

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
	said := ""
	defer func() {
		if testing.Verbose() && w.scrape() != nil || !strings.HasPrefix(said, f.banner) { // scraping begins a check
			w.t.Logf("the dashboard says %q", said)
		}
	}()
	eventually(w.t, fmt.Sprintf("the dashboard says %q", f.banner), func() bool {
		if m := firstBanner.FindStringSubmatch(w.look()); m != nil {
			said = strings.Join(strings.Fields(tags.ReplaceAllString(m[1], " ")), " ")
		}
		return strings.HasPrefix(said, f.banner) && strings.Contains(said, f.step)
	})
}

// inquire runs worqr check.
func (f *failure) inquire(w *ward, cli string) {
	w.t.Helper()
	said := ""
	defer func() {
		if testing.Verbose() || w.t.Failed() {
			w.t.Logf("worqr check says\n%s", said)
		}
	}()
	eventually(w.t, "worqr check says "+f.check, func() bool {
		c := exec.CommandContext(w.t.Context(), cli, append([]string{"check"}, f.flags...)...)
		c.Env = append(c.Environ(), "REDIS_URL="+w.url)
		out, _ := c.CombinedOutput() // its exit status depends on the findings
		said = string(out)
		lines := strings.Split(said, "\n")
		if strings.HasPrefix(f.check, "worqr: ") {
			return strings.HasPrefix(said, f.check) && strings.Contains(said, f.step)
		}
		return len(lines) > 1 && strings.HasPrefix(lines[1], f.check) // after the summary
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
