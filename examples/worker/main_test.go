package main

import (
	"context"
	"encoding/json"
	"fmt"
	"go/constant"
	"go/token"
	"go/types"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"
	"go.yaml.in/yaml/v3"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) {
	// A test server that closes also closes the connections of a plain http.DefaultTransport, under requests of other tests.
	http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport}
	os.Exit(peertest.Main(m))
}

const (
	deploy = "../../deploy/"
	docs   = "../../docs/"
)

func read(t testing.TB, file string) string {
	t.Helper()
	text := redistest.Sure(os.ReadFile(file))(t)
	return string(text)
}

// A fleet is three running services.
type fleet struct {
	redis string
	conn  redis.Conn  // of a user with KEDA's rule
	peer  *worqr.Peer // an observer
	urls  []string
	stop  func() // drains, and checks that all ended well
}

func startFleet(t *testing.T, c config) *fleet {
	t.Helper()
	server := redistest.Start(t) // the manifests name keys without a prefix
	f := &fleet{redis: server.URL(), conn: keda(t, server)}
	f.peer = peertest.OpenAt(t, f.redis, worqr.Options{Prefix: "worqr"})
	c.redis = f.redis
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 3)
	for range 3 {
		listener := redistest.Sure(net.Listen("tcp", "127.0.0.1:0"))(t)
		f.urls = append(f.urls, "http://"+listener.Addr().String())
		go func() { ended <- serve(ctx, c, listener) }()
	}
	f.stop = sync.OnceFunc(func() {
		cancel()
		for range 3 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(f.stop)
	for _, url := range f.urls {
		peertest.Eventually(t, "a service is ready", func() bool { return status(url+"/readyz") == http.StatusOK })
	}
	return f
}

// keda connects as a user with the permissions that KEDA needs, according to the README.
func keda(t testing.TB, server *redistest.Server) redis.Conn {
	t.Helper()
	rule := regexp.MustCompile("`(\\+ping [^`]*)`").FindStringSubmatch(read(t, deploy+"kubernetes/README.md"))
	user := redis.Args{"SETUSER", "keda", "on", ">secret"}.AddFlat(strings.Fields(rule[1]))
	for _, trigger := range scaled(t).Triggers {
		user = append(user, "~"+trigger.Metadata["listName"]+trigger.Metadata["stream"])
	}
	redistest.Do(t, redistest.Dial(t, server.URL()), "ACL", user...)
	conn := redistest.Dial(t, "redis://keda:secret@"+server.Addr())
	redistest.Do(t, conn, "PING")
	return conn
}

func status(url string) int {
	answer, err := http.Get(url)
	if err != nil {
		return 0
	}
	defer func() { _ = answer.Body.Close() }()
	return answer.StatusCode
}

// A sample is a value with its labels.
type sample struct {
	labels map[string]string
	value  float64
}

var (
	line  = regexp.MustCompile(`(?m)^([a-z_:]+)(?:\{(.*)\})? (\S+)$`)
	label = regexp.MustCompile(`([a-z_]+)(=~?)"([^"]*)"`)
)

// scrape reads the metrics of a service, by name.
func scrape(t testing.TB, url string) map[string][]sample {
	t.Helper()
	answer := redistest.Sure(http.Get(url + "/metrics"))(t)
	defer func() { _ = answer.Body.Close() }()
	text := redistest.Sure(io.ReadAll(answer.Body))(t)
	metrics := map[string][]sample{}
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		s := sample{labels: map[string]string{"job": "service", "instance": strings.TrimPrefix(url, "http://")}}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			s.labels[l[1]] = l[3]
		}
		s.value = redistest.Sure(strconv.ParseFloat(m[3], 64))(t)
		metrics[m[1]] = append(metrics[m[1]], s)
	}
	return metrics
}

// total adds the values of a metric that have these labels.
func total(all []sample, labels ...string) (sum float64) {
	for _, s := range all {
		match := true
		for i := 0; i < len(labels); i += 2 {
			match = match && s.labels[labels[i]] == labels[i+1]
		}
		if match {
			sum += s.value
		}
	}
	return sum
}

// An alert is a rule of Prometheus.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t testing.TB) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	peertest.Must(t, yaml.Unmarshal([]byte(read(t, deploy+"fleet/alerts.yml")), &file))
	return file.Groups[0].Rules
}

// panels returns the expressions of the dashboard, by the titles of the panels.
func panels(t testing.TB) map[string][]string {
	t.Helper()
	var file struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	peertest.Must(t, json.Unmarshal([]byte(read(t, deploy+"fleet/grafana/worqr.json")), &file))
	exprs := map[string][]string{}
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			exprs[p.Title] = append(exprs[p.Title], target.Expr)
		}
		if p.Type != "row" && len(exprs[p.Title]) == 0 {
			t.Errorf("the panel %q shows nothing", p.Title)
		}
	}
	for _, v := range file.Templating.List {
		if v.Definition != "" {
			exprs["$"+v.Name] = append(exprs["$"+v.Name], v.Definition)
		}
	}
	return exprs
}

// chosen returns the samples with the labels. It ignores variables.
func chosen(all []sample, matchers string) (some []sample) {
	for _, s := range all {
		matches := true
		for _, l := range label.FindAllStringSubmatch(matchers, -1) {
			value, has := s.labels[l[1]]
			matches = matches && has && (l[3][0] == '$' || slices.Contains(strings.Split(l[3], "|"), value))
		}
		if matches {
			some = append(some, s)
		}
	}
	return some
}

var (
	selector = regexp.MustCompile(`(worqr_[a-z_]+)(?:\{([^}]*)\})?`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// checkExpr checks the names in an expression against metrics: each selector matches something, with labels
// that exist, and it groups by labels of the metric in question.
func checkExpr(t testing.TB, of, expr string, metrics map[string][]sample) {
	t.Helper()
	group := map[string]bool{}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, l := range strings.Split(g[1], ",") {
			group[strings.TrimSpace(l)] = true
		}
	}
	found := selector.FindAllStringSubmatch(expr, -1)
	if len(found) == 0 {
		t.Errorf("%s: no metric in %s", of, expr)
	}
	if strings.Count(expr, "(") != strings.Count(expr, ")") || strings.Count(expr, "[") != strings.Count(expr, "]") {
		t.Errorf("%s: %s isn't closed", of, expr)
	}
	named := map[string]bool{}
	for _, m := range found {
		for _, s := range metrics[m[1]] {
			for l := range s.labels {
				named[l] = true
			}
		}
		if len(chosen(metrics[m[1]], m[2])) == 0 {
			t.Errorf("%s: no fleet has %s", of, m[0])
		}
		shared := strings.HasPrefix(m[1], "worqr_queue_")
		if shared && regexp.MustCompile(`sum(?: by \([^)]*\))? ?\(`+regexp.QuoteMeta(m[0])).MatchString(expr) {
			t.Errorf("%s: %s is the same for all replicas, but is summed", of, m[0])
		}
	}
	for l := range group {
		if !named[l] {
			t.Errorf("%s: none of its metrics has the label %s", of, l)
		}
	}
}

// Each metric and label that an alert or the dashboard names exists in a running fleet. All processes, and KEDA's triggers, report the same state of Redis.
func TestFleet(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := startFleet(t, config{queue: "emails", dashboard: true, check: time.Hour})
	ctx, emails := t.Context(), f.peer.Queue("emails")
	for i := range 90 {
		kind := "quick"
		if i%30 == 0 {
			kind = "broken"
		}
		redistest.Sure(emails.Add(ctx, worqr.TaskSpec{Payload: []byte(kind)}))(t)
	}
	ended := func(outcome string) (n float64) {
		for _, url := range f.urls {
			n += total(scrape(t, url)["worqr_tasks_ended_total"], "queue", "emails", "outcome", outcome)
		}
		return n
	}
	peertest.Eventually(t, "all have ended", func() bool { return ended("finished") == 87 && ended("failed") == 3 })

	is.NoErr(emails.Pause(ctx)) // so that waiting tasks stay
	is.NoErr(emails.Enqueue(ctx, []byte("quick"), []byte("quick"), []byte("quick")))
	redistest.Sure(emails.Add(ctx, worqr.TaskSpec{Payload: []byte("quick")}))(t)
	redistest.Sure(emails.Add(ctx, worqr.TaskSpec{Payload: []byte("quick"), At: time.Now().Add(time.Hour)}))(t)
	var all []map[string][]sample
	peertest.Eventually(t, "all report the same about the queue", func() bool { // values are cached for a second
		all = nil
		same := true
		for _, url := range f.urls {
			m := scrape(t, url)
			all = append(all, m)
			for name, want := range map[string]float64{"waiting_tasks": 4, "scheduled_tasks": 1, "failed_tasks": 3, "running_tasks": 0, "workers": 3, "paused": 1, "silent": 0} {
				same = same && total(m["worqr_queue_"+name], "queue", "emails") == want
			}
		}
		return same
	})
	for _, m := range all {
		is.Equal(total(m["worqr_ready"]), 1.)
		is.Equal(total(m["worqr_queues_readable"]), 1.)
		is.True(total(m["worqr_queue_oldest_task_age_seconds"], "queue", "emails") < 60)
	}
	merged := map[string][]sample{}
	for _, m := range all {
		for name, some := range m {
			merged[name] = append(merged[name], some...)
		}
	}
	is.Equal(total(merged["worqr_task_wait_seconds_count"], "queue", "emails"), 90.)
	merged["worqr_tasks_enqueued_total"] = []sample{{labels: map[string]string{"queue": "emails", "job": "service"}}} // they were added by others
	merged["worqr_tasks_canceled_total"] = merged["worqr_tasks_enqueued_total"]
	peertest.Eventually(t, "the fleet is checked", func() bool {
		merged["worqr_last_check_timestamp_seconds"] = scrape(t, f.urls[0])["worqr_last_check_timestamp_seconds"] // one of them checks for all
		return total(merged["worqr_last_check_timestamp_seconds"]) > 0
	})
	for _, name := range []string{"aside_rows", "oldest_row_age_seconds"} { // this service has no outbox
		merged["worqr_source_outbox_"+name] = []sample{{}}
	}
	merged["worqr_worker_evicted_timestamp_seconds"] = []sample{{labels: map[string]string{"name": "", "host": ""}}} // nobody died here
	for _, kind := range worqr.FindingKinds() {                                                                      // this fleet doesn't have all of them; TestFailures has
		merged["worqr_findings"] = append(merged["worqr_findings"], sample{labels: map[string]string{"kind": string(kind), "severity": "lost"}})
	}
	for _, a := range alerts(t) {
		checkExpr(t, a.Alert, a.Expr, merged)
	}
	for title, exprs := range panels(t) {
		for _, expr := range exprs {
			checkExpr(t, title, expr, merged)
		}
	}
	is.Equal(f.triggers(t), map[string]int{"list": 3, "ready": 1})
	is.Equal(replicas(t, f.triggers(t)), 4./50)

	is.NoErr(emails.Delete(ctx))
	is.NoErr(emails.Resume(ctx))
	is.NoErr(emails.Enqueue(ctx, slices.Repeat([][]byte{[]byte("slow")}, 30)...)) // 10 at a time in each
	peertest.Eventually(t, "all are busy", func() bool { return peertest.Stats(t, emails).Running == 30 })
	for _, url := range f.urls {
		is.Equal(status(url+"/livez"), http.StatusOK)
		is.Equal(status(url+"/"), http.StatusOK)
	}
	f.stop() // waits for the running tasks
	is.Equal(peertest.Stats(t, emails).Running, 0)
}

// replicas returns how many replicas KEDA would run, before rounding up. Its formula is a Go expression, too.
func replicas(t testing.TB, triggers map[string]int) float64 {
	t.Helper()
	formula := regexp.MustCompile(`[a-z]+`).ReplaceAllStringFunc(scaled(t).Advanced.ScalingModifiers.Formula, func(name string) string {
		if n, ok := triggers[name]; ok {
			return fmt.Sprintf("%d.0", n)
		}
		return name
	})
	v := redistest.Sure(types.Eval(token.NewFileSet(), nil, token.NoPos, formula))(t)
	n, _ := constant.Float64Val(v.Value)
	return n
}

// triggers sends KEDA's queries to Redis, for each trigger of the manifest.
func (f *fleet) triggers(t testing.TB) map[string]int {
	t.Helper()
	numbers := map[string]int{}
	for _, trigger := range scaled(t).Triggers {
		key, commands := trigger.Metadata["listName"], map[string]string{"list": "LLEN", "none": "LLEN", "zset": "ZCARD", "set": "SCARD", "hash": "HLEN"}
		kind := redistest.Sure(redis.String(f.conn.Do("TYPE", key)))(t)
		if commands[kind] == "" {
			t.Fatalf("%s is a %s, which a trigger %s can't count", key, kind, trigger.Type)
		}
		n := redistest.Sure(redis.Int(f.conn.Do("EVAL", "return redis.call(ARGV[1], KEYS[1])", 1, key, commands[kind])))(t)
		numbers[trigger.Name] = n
	}
	return numbers
}

// A scaling is the part of a ScaledObject that matters here.
type scaling struct {
	ScaleTargetRef struct{ Name string } `yaml:"scaleTargetRef"`
	Advanced       struct {
		ScalingModifiers struct{ Formula string } `yaml:"scalingModifiers"`
	}
	Triggers []struct {
		Name, Type string
		Metadata   map[string]string
	}
}

// documents decodes the documents of one kind in a YAML file.
func documents[T any](t testing.TB, file, kind string) (all []T) {
	t.Helper()
	decoder := yaml.NewDecoder(strings.NewReader(read(t, file)))
	for {
		var node yaml.Node
		if err := decoder.Decode(&node); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Kind string
			Spec T
		}
		peertest.Must(t, node.Decode(&d))
		if d.Kind == kind {
			all = append(all, d.Spec)
		}
	}
}

func scaled(t testing.TB) scaling {
	t.Helper()
	return documents[scaling](t, deploy+"kubernetes/keda.yml", "ScaledObject")[0]
}

// The keys in KEDA's manifest are in the protocol's table, and its formula names its triggers.
func TestScaling(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := scaled(t)
	is.Equal(s.ScaleTargetRef.Name, "service")
	protocol, formula := read(t, docs+"protocol.md"), s.Advanced.ScalingModifiers.Formula
	for _, trigger := range s.Triggers {
		key := trigger.Metadata["listName"]
		if !strings.Contains(protocol, "| `"+strings.Replace(key, "{emails}", "{q}", 1)+"` |") {
			t.Errorf("docs/protocol.md has no key %s", key)
		}
		is.True(regexp.MustCompile(`\b` + trigger.Name + `\b`).MatchString(formula))
		if !strings.Contains(read(t, deploy+"kubernetes/README.md"), "| `"+trigger.Name+"` | `"+key+"` |") {
			t.Errorf("the README doesn't explain %s", trigger.Name)
		}
	}
}

// The deployment's probes match the service's endpoints, and it has time to drain.
func TestDeployment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	type deployment struct {
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []struct {
					Live  probe `yaml:"livenessProbe"`
					Ready probe `yaml:"readinessProbe"`
					Env   []struct{ Name string }
				}
			}
		}
	}
	pod := documents[deployment](t, deploy+"kubernetes/worker.yml", "Deployment")[0].Template
	c := pod.Spec.Containers[0]
	is.Equal(c.Live.HTTPGet.Path, "/livez")
	is.Equal(c.Ready.HTTPGet.Path, "/readyz")
	is.Equal(pod.Metadata.Annotations["prometheus.io/path"], "/metrics")
	is.True(time.Duration(pod.Spec.Grace)*time.Second > 40*time.Second) // Drain + Grace + 5 s
	program := read(t, "main.go")
	for _, e := range c.Env {
		is.True(strings.Contains(program, fmt.Sprintf("os.Getenv(%q)", e.Name)))
	}
	var compose struct {
		Services map[string]struct {
			Environment map[string]string
			Grace       string `yaml:"stop_grace_period"`
			Volumes     []string
		}
	}
	peertest.Must(t, yaml.Unmarshal([]byte(read(t, deploy+"fleet/compose.yml")), &compose))
	service := compose.Services["service"]
	for name := range service.Environment {
		is.True(strings.Contains(program, fmt.Sprintf("os.Getenv(%q)", name)))
	}
	grace, err := time.ParseDuration(service.Grace)
	is.True(err == nil && grace > 40*time.Second)
	for _, v := range compose.Services["grafana"].Volumes {
		file, _, _ := strings.Cut(v, ":")
		_ = read(t, deploy+"fleet/"+file)
	}
	for _, file := range []string{"fleet/prometheus.yml", "fleet/grafana/datasource.yml", "fleet/grafana/dashboards.yml"} {
		var any map[string]any
		peertest.Must(t, yaml.Unmarshal([]byte(read(t, deploy+file)), &any))
	}
	for _, m := range regexp.MustCompile(`go build .* (\./\S+)`).FindAllStringSubmatch(read(t, deploy+"fleet/Dockerfile"), -1) {
		_ = read(t, "../../"+m[1]+"/main.go")
	}
}

// Each alert has a runbook page with its expression, and there are no other pages.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	pages := redistest.Sure(filepath.Glob(deploy + "runbooks/*.md"))(t)
	var have []string
	for _, p := range pages {
		have = append(have, strings.TrimSuffix(filepath.Base(p), ".md"))
	}
	var want []string
	for _, a := range alerts(t) {
		want = append(want, a.Alert)
		page := read(t, deploy+"runbooks/"+a.Alert+".md")
		if !strings.Contains(page, "\n"+a.Expr+"\n") {
			t.Errorf("%s: the page has another expression", a.Alert)
		}
		if !strings.HasSuffix(a.Annotations["runbook_url"], "/deploy/runbooks/"+a.Alert+".md") || a.Annotations["summary"] == "" || a.Labels["severity"] == "" {
			t.Errorf("%s: %v, %v", a.Alert, a.Annotations, a.Labels)
		}
	}
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("pages %q\nalerts %q", have, want)
	}
}
