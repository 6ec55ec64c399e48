package dash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

func TestMain(m *testing.M) {
	// A test server that closes also closes the connections of a plain http.DefaultTransport, under requests of other tests.
	http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport}
	os.Exit(peertest.Main(m))
}

func parallel(t *testing.T) *is.I {
	t.Helper()
	t.Parallel()
	return is.New(t)
}

// open returns a peer with the permissions of a dashboard, including Check.
func open(t testing.TB, opts worqr.Options) *worqr.Peer {
	t.Helper()
	opts.Prefix = redistest.Prefix(t)
	return peertest.OpenDoctor(t, redistest.URL(), opts)
}

// A browser is a client that follows no redirects, with a dashboard.
type browser struct {
	t    testing.TB
	base string // of the dashboard, with a slash at the end
	http *http.Client
}

// browse mounts a dashboard of a peer at a path of its own.
func browse(t testing.TB, p *worqr.Peer, opts *dash.Options) *browser {
	t.Helper()
	return browsing(t, dash.New(p, opts))
}

func browsing(t testing.TB, h http.Handler) *browser {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/ops/worqr/", h)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // streams
	return &browser{t, server.URL + "/ops/worqr/", &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// A reply is a response that was read.
type reply struct {
	*http.Response
	text string
}

func (b *browser) do(r *http.Request) reply {
	b.t.Helper()
	resp, err := b.http.Do(r)
	peertest.Must(b.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	peertest.Must(b.t, err)
	return reply{resp, string(text)}
}

func (b *browser) get(page string) reply {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.base+page, nil)
	peertest.Must(b.t, err)
	return b.do(r)
}

// post sends a form: names and values alternate.
func (b *browser) post(page string, form ...string) reply {
	b.t.Helper()
	v := url.Values{}
	for i := 0; i < len(form); i += 2 {
		v.Add(form[i], form[i+1])
	}
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.base+page, strings.NewReader(v.Encode()))
	peertest.Must(b.t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.SetBasicAuth("ann", "secret")
	return b.do(r)
}

// act does an action that must succeed, and returns the page that it redirects to.
func (b *browser) act(form ...string) reply {
	b.t.Helper()
	r := b.post("act", form...)
	if r.StatusCode != http.StatusSeeOther {
		b.t.Fatalf("%v: %s\n%s", form, r.Status, r.text)
	}
	return b.get(strings.TrimPrefix(r.Header.Get("Location"), "./"))
}

// shows waits until a page has all texts, and returns it.
func (b *browser) shows(page string, texts ...string) (r reply) {
	b.t.Helper()
	missing := ""
	defer func() {
		if b.t.Failed() {
			b.t.Logf("%s does not contain %q:\n%s", page, missing, r.text)
		}
	}()
	peertest.Eventually(b.t, page+" shows "+strings.Join(texts, ", "), func() bool {
		r = b.get(page)
		for _, text := range texts {
			if missing = text; !strings.Contains(r.text, text) {
				return false
			}
		}
		return true
	})
	return r
}

// fail puts tasks into the failed queue, with these reasons.
func fail(t testing.TB, q *worqr.Queue, payload string, reasons ...string) {
	t.Helper()
	for _, reason := range reasons {
		peertest.Enqueue(t, q, payload)
		peertest.Must(t, peertest.Take(t, q).Fail(t.Context(), errors.New(reason)))
	}
}

// Each page shows the fleet, in HTML that needs no script, wherever it's mounted.
func TestPages(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{Name: "replica-1"})
	q := peertest.Working(t, p, "emails")
	fail(t, q, "bad mail", "no such mailbox: 17", "no such mailbox: 18", "disk full")
	peertest.Add(t, q, worqr.TaskSpec{Key: "invoice-7", Payload: []byte("later"), At: time.Now().Add(time.Hour)})
	peertest.Add(t, q, worqr.TaskSpec{Key: "bad-1", Payload: []byte("bad")})
	peertest.Must(t, peertest.Take(t, q).Fail(t.Context(), errors.New("no ink")))
	peertest.Enqueue(t, q, `{"to":"ann"}`, "second")
	running := peertest.Take(t, q)
	b := browse(t, p, &dash.Options{Title: "acme", Interval: 100 * time.Millisecond})

	b.shows("", "acme", "emails", "Read-only.", `<dt>failed</dt><dd><a href="failed">4</a>`)
	b.shows("queue?name=emails", "second", "Throughput", "polyline")
	b.shows("queue?name=emails&tab=running", "replica-1", "to&#34;:<wbr>&#34;ann")
	b.shows("queue?name=emails&tab=scheduled", "invoice-7", "in 59 min")
	b.shows("queue?name=emails&tab=named", "No named task is ready")
	b.shows("failed", "emails", "4 tasks")
	b.shows("failed?name=emails", "no such mailbox: …", "disk full", "bad mail")
	b.shows("task?name=emails&key=invoice-7", "Starts in 59 min", "later")
	b.shows("task?name=emails&key=bad-1", "Attempts that failed", `data-label="Took"`, "replica-1</a>", `<td class="error full">no ink</td>`)
	b.shows("workers", "replica-1", "emails")
	b.shows("server", "Findings", p.WorkerID())
	is.Equal(b.get("queue?name=nosuch").StatusCode, http.StatusNotFound)
	is.Equal(b.get("nosuch").StatusCode, http.StatusNotFound)
	is.Equal(b.post("workers").StatusCode, http.StatusMethodNotAllowed)
	for _, page := range []string{"", "queue?name=emails", "failed?name=emails", "task?name=emails&key=invoice-7", "workers"} {
		r := b.get(page)
		is.Equal(r.StatusCode, http.StatusOK)
		is.True(!strings.Contains(r.text, `action="act"`)) // no page has a form
		is.True(!strings.Contains(r.text, "<no value>"))
		for _, inline := range []string{"<script>", " style=", " onclick=", "javascript:"} {
			is.True(!strings.Contains(r.text, inline)) // the policy would forbid it
		}
		is.True(strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'; "))
		is.Equal(r.Header.Get("Cache-Control"), "no-store")
		is.Equal(r.Header.Get("X-Content-Type-Options"), "nosniff")
	}
	is.NoErr(running.Finish(t.Context()))

	stripped := httptest.NewServer(http.StripPrefix("/x", dash.New(p, nil)))
	defer stripped.Close()
	there := &browser{t, stripped.URL + "/x", b.http}
	is.Equal(there.get("").Header.Get("Location"), "x/")
	is.Equal(there.get("/").StatusCode, http.StatusOK)
}

// A payload is found by its text, and by the digest in links; the page explains why it waits.
func TestTask(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("emails")
	peertest.Enqueue(t, q, "first", "second\nline")
	b := browse(t, p, nil)
	list := b.shows("queue?name=emails", "first", "second line").text
	_, link, _ := strings.Cut(list, `<a href="task?digest=`)
	link, _, _ = strings.Cut(link, `"`)
	is.True(!strings.Contains(link, "first"))
	b.shows("task?digest="+strings.ReplaceAll(link, "&amp;", "&"), "first", "No worker serves this queue")
	r := b.post("task", "name", "emails", "payload", "second\r\nline") // as browsers send it
	is.True(strings.Contains(r.text, "No worker serves this queue"))
	is.True(strings.Contains(b.post("task", "name", "emails", "payload", "third").text, "No copy of the task"))
	b.shows("task?name=emails&digest=00", "probably ended")
	_, err := q.Add(t.Context(), worqr.TaskSpec{Payload: []byte("x"), Headers: map[string]string{"trace": "abc"}})
	is.NoErr(err)
	b.shows("task?name=emails&header=trace:+abc", ">waiting</span>")
}

// Payloads are hidden, or shown as the hook returns them, on each page, and searched as they're shown.
func TestPayload(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := peertest.Working(t, p, "q")
	fail(t, q, "canary", "no")
	peertest.Enqueue(t, q, "canary", "\x00\xff\x00\x01")
	pages := []string{"queue?name=q", "failed?name=q", "failed?name=q&payload=can"}
	hidden := browse(t, p, &dash.Options{Payload: dash.HidePayloads})
	for _, page := range pages {
		is.True(!strings.Contains(hidden.get(page).text, "canary"))
	}
	hidden.shows(pages[1], "(hidden)")
	hidden.shows(pages[2], "0 of 1 failed task match")
	is.True(!strings.Contains(hidden.get(pages[1]).text, `name="payload" value="" placeholder`)) // searching would be useless
	formatted := browse(t, p, &dash.Options{Payload: func(queue string, b []byte) string { return queue + " has <" + string(b[:1]) + ">" }})
	formatted.shows(pages[1], "q has &lt;c&gt;")
	formatted.shows("failed?name=q&payload=canary", "0 of 1 failed task match")
	plain := browse(t, p, nil)
	plain.shows(pages[0], "(4 bytes that aren&#39;t text)")
	plain.shows(pages[2], "1 of 1 failed task match")
}

// Text from outside is shown as text, wherever it appears.
func TestHostile(t *testing.T) {
	is := parallel(t)
	evil := `<script>alert(1)</script>"'><img/src=x>` + "\u202egnp"
	name := strings.ReplaceAll(evil, " ", "")
	p := open(t, worqr.Options{Name: evil})
	q := peertest.Working(t, p, name)
	fail(t, q, evil, evil)
	peertest.Add(t, q, worqr.TaskSpec{Key: evil, Payload: []byte(evil), At: time.Now().Add(time.Hour)})
	peertest.Enqueue(t, q, evil, evil)
	running := peertest.Take(t, q)
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	n := url.QueryEscape(name)
	for _, page := range []string{"", "?q=" + n, "queue?name=" + n, "queue?tab=running&name=" + n, "queue?tab=scheduled&name=" + n, "failed", "failed?name=" + n,
		"failed?name=" + n + "&reason=" + url.QueryEscape("<script>"), "task?name=" + n + "&key=" + url.QueryEscape(evil), "workers", "workers?q=" + n, "queue?name=<script>alert(1)</script>", "<script>alert(1)</script>"} {
		r := b.shows(page, "script")
		is.True(!strings.Contains(r.text, "<script>alert"))
		is.True(!strings.Contains(r.text, "<img"))
		is.True(!strings.Contains(r.text, "\u202e") || strings.Contains(r.text, "value=")) // no text changes direction
	}
	is.NoErr(running.Finish(t.Context()))
}

// What another program has written in place of a word isn't shown.
func TestForgedWords(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := peertest.OpenDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix})
	q, conn := peertest.Working(t, p, "q"), redistest.Conn(t)
	fail(t, q, "payload", "reason")
	key := func(kind string) string { return prefix + ":" + kind + ":{q}" }
	forged := "\x1b\xff\u202e" + strings.Repeat("evil", 1<<16)
	for f, err := range q.Failed(t.Context()) {
		is.NoErr(err)
		failure := forged + ":1:w:w.1.1.1:0:0:0:6:reason"
		redistest.Do(t, conn, "HSET", key("failed:tasks"), f.ID, fmt.Sprintf("0:0:0:0:0:%d:%spayload", len(failure), failure))
	}
	redistest.Do(t, conn, "ZADD", key("recurring"), "9e15", "k:cleanup")
	redistest.Do(t, conn, "HSET", key("recurrence"), "k:cleanup", "2|", "passed:k:cleanup", 1, "last:k:cleanup", forged+":1:1")
	peertest.Add(t, q, worqr.TaskSpec{Key: "running", Payload: []byte("held")})
	peertest.Take(t, q)
	redistest.Do(t, conn, "HSET", key("runs"), "k:running", forged+":0:0:")
	b := browse(t, p, &dash.Options{AllowActions: true})
	page := b.shows("failed?name=q", "reason").text // a busy machine may list nothing in time
	_, digest, _ := strings.Cut(page, "task?digest=")
	digest, _, _ = strings.Cut(digest, "&")
	for page, says := range map[string]string{"failed?name=q": "reason", "task?name=q&digest=" + digest: "reason", "recurring": "cleanup", "task?name=q&key=running": "running"} {
		if r := b.shows(page, says); strings.Contains(r.text, "evil") || strings.ContainsAny(r.text, "\x1b\u202e") {
			t.Errorf("%s has %d bytes: %.500q", page, len(r.text), r.text)
		}
	}
}

// A page is shown, with an explanation, while Redis can't be reached or refuses the login.
func TestAway(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	for _, c := range []struct{ url, says string }{
		{"redis://127.0.0.1:1", "Redis can’t be reached"},
		{"redis://nobody:wrong@" + server.Addr(), "Redis refuses the login"},
	} {
		p, err := worqr.Open(c.url, nil)
		is.NoErr(err)
		defer p.Close()
		b := browse(t, p, nil)
		for _, page := range []string{"", "workers", "server", "failed", "queue?name=emails", "failed?name=emails", "recurring", "task?name=emails&key=k"} {
			r := b.shows(page, strings.ReplaceAll(c.says, "’", "&#39;"))
			is.Equal(r.StatusCode, http.StatusOK)
			is.True(!strings.Contains(r.text, "wrong@"))
		}
	}
}

// stream opens the stream of a page, and returns its messages.
func (b *browser) stream(ctx context.Context, query string) <-chan map[string]string {
	b.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+"stream?"+query, nil)
	peertest.Must(b.t, err)
	resp, err := b.http.Do(r)
	peertest.Must(b.t, err)
	told := make(chan map[string]string, 100)
	go func() {
		defer close(told)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var changed map[string]string
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(text), &changed) == nil {
				told <- changed
			}
		}
	}()
	return told
}

// await receives messages until a part of the page contains a text.
func await(t testing.TB, told <-chan map[string]string, part, text string) {
	t.Helper()
	late := time.After(peertest.Patience)
	for {
		select {
		case changed, ok := <-told:
			if !ok {
				t.Fatalf("the stream ended before %s had %q", part, text)
			}
			if strings.Contains(changed[part], text) {
				return
			}
		case <-late:
			t.Fatalf("%s never had %q", part, text)
		}
	}
}

// A stream sends changes, and Redis is read only while one is open.
func TestStream(t *testing.T) {
	is := parallel(t)
	server := redistest.Start(t)
	p := peertest.OpenDoctor(t, server.URL(), worqr.Options{Prefix: redistest.Prefix(t)})
	q := p.Queue("emails")
	peertest.Enqueue(t, q, "a")
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	overview, one := b.stream(ctx, "show=overview"), b.stream(ctx, "show=queue&name=emails")
	for _, page := range []string{"failed", "failed&name=emails", "task&name=emails&key=k", "recurring", "workers", "server"} { // each page has a stream
		told := b.stream(ctx, "show="+page)
		await(t, told, "banners", "No worker")
		is.NoErr(q.Pause(ctx))
		await(t, told, "banners", "Paused")
		is.NoErr(q.Resume(ctx))
	}
	await(t, overview, "queues", "No worker")
	await(t, one, "queue-totals", "<dd>1</dd>")
	is.NoErr(q.Pause(ctx))
	await(t, overview, "banners", "Paused")
	await(t, one, "drain", "Paused and drained")
	peertest.Enqueue(t, q, "b")
	await(t, one, "tasks", "<code>b</code>")
	is.Equal(b.get("stream?show=nosuch").StatusCode, http.StatusNotFound)

	leave()
	commands := func() string { return peertest.Info(t, redistest.Dial(t, server.URL()), "commandstats") }
	peertest.Eventually(t, "nobody asks Redis anymore", func() bool {
		const look = "cmdstat_info"
		before := strings.Split(commands(), "\n")
		time.Sleep(500 * time.Millisecond) // five intervals
		after := strings.Split(commands(), "\n")
		for i, line := range after {
			if !strings.HasPrefix(line, look) && !strings.HasPrefix(line, "cmdstat_hello") && !strings.HasPrefix(line, "cmdstat_client") && (i >= len(before) || before[i] != line) {
				return false
			}
		}
		return true
	})
}

// An open page that takes a long time to render is rendered less often.
func TestSlowPage(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("q"), "a")
	const takes = 200 * time.Millisecond
	made := make(chan time.Time, 100)
	b := browse(t, p, &dash.Options{Interval: 100 * time.Millisecond, Payload: func(string, []byte) string {
		made <- time.Now()
		time.Sleep(takes)
		return ""
	}})
	b.stream(t.Context(), "show=queue&name=q")
	first := <-made
	is.True((<-made).Sub(first) >= 5*takes)
}

// Streams end when their server shuts down, so that it doesn't wait for them.
func TestShutdown(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	server := httptest.NewServer(dash.New(p, nil))
	defer server.Close()
	b := &browser{t, server.URL + "/", server.Client()}
	told := b.stream(t.Context(), "show=overview")
	<-told
	is.NoErr(server.Config.Shutdown(t.Context()))
	for range told {
	}
}

// Assets are small, and cached.
func TestAssets(t *testing.T) {
	is := parallel(t)
	b := browse(t, open(t, worqr.Options{}), nil)
	page := b.get("").text
	total := 0
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		_, version, ok := strings.Cut(page, `"`+name+"?v=")
		is.True(ok)
		version, _, _ = strings.Cut(version, `"`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.base+name+"?v="+version, nil)
		is.NoErr(err)
		got := b.do(r)
		is.True(strings.Contains(got.Header.Get("Cache-Control"), "immutable"))
		total += len(got.text)
		r.Header.Set("If-None-Match", got.Header.Get("ETag"))
		is.Equal(b.do(r).StatusCode, http.StatusNotModified)
		is.Equal(b.get(name+"?v=old").Header.Get("Cache-Control"), "no-cache")
	}
	t.Log(total, "bytes")
	is.True(total < 45_000)
}
