package dash_test

import (
	"context"
	"flag"
	"fmt"
	"html"
	"log/slog"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/words"
)

// The size of TestScale's fleet. docs/dashboard.md has its results for 1000, 1000 and 1000000.
var (
	scaleQueues  = flag.Int("dash.queues", 30, "queues of TestScale")
	scaleWorkers = flag.Int("dash.workers", 10, "workers of TestScale")
	scaleFailed  = flag.Int("dash.failed", 2_000, "failed tasks of TestScale")
	scaleLarge   = flag.Int("dash.large", 100, "failed tasks of TestSearchEnds, of 100 kB each")
	scaleWhole   = flag.Bool("dash.whole", false, "TestSearchEnds watches a search until it ends, which takes minutes")
)

// In a large fleet, no page takes long or needs much of Redis's time. With its flags, the test is a
// benchmark; its limits allow for a busy machine.
func TestScale(t *testing.T) {
	parallel(t)
	server := redistest.Start(t)
	conn := redistest.Dial(t, server.URL())
	prefix := redistest.Prefix(t)
	p := peertest.OpenDoctor(t, server.URL(), worqr.Options{Prefix: prefix})
	fillQueues(t, p, *scaleQueues)
	fillFailed(t, server.URL(), prefix, *scaleFailed)
	startWorkers(t, server.URL(), prefix, *scaleWorkers, *scaleQueues)

	b := browse(t, p, &dash.Options{AllowActions: true})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for _, page := range []string{"overview", "workers", "failed&name=mails"} {
		<-b.stream(ctx, "show="+page)
	}
	visited(t, b, conn)
	searched(t, b)
	_, footer, _ := strings.Cut(b.get("").text, "<footer")
	_, read, _ := strings.Cut(footer, "</time>, ")
	t.Logf("a snapshot of the fleet is %.20s", read)
}

// visited opens all pages, and logs how much time and how much of Redis's CPU time they take.
func visited(t *testing.T, b *browser, conn redis.Conn) {
	t.Helper()
	const times = 5
	slowest := time.Duration(0)
	for _, page := range []string{"", "?sort=waiting", "?page=9", "?q=queue-7", "queue?name=queue-7", "queue?name=mails&tab=running", "queue?name=mails&tab=scheduled",
		"task?name=mails&key=k", "task?name=mails&digest=00", "workers", "workers?q=peer-7", "failed", "failed?name=mails", "failed?name=mails&reason=disk", "recurring", "server"} {
		var took []time.Duration
		before := processor(t, conn)
		for range times {
			begun := time.Now()
			if r := b.get(page); r.StatusCode != 200 {
				t.Fatalf("%s: %s", page, r.Status)
			}
			took = append(took, time.Since(begun))
		}
		used := processor(t, conn) - before
		slices.Sort(took)
		t.Logf("%-32s %4d ms median, %4d ms at most; CPU of Redis %.1f ms", page, took[times/2].Milliseconds(), took[times-1].Milliseconds(), used/times*1000)
		slowest = max(slowest, took[times/2])
		if used/times > 0.2 {
			t.Errorf("%s: Redis works %.0f ms for it", page, used/times*1000)
		}
	}
	if slowest > 3*time.Second {
		t.Errorf("the slowest page takes %v", slowest)
	}
}

// processor returns the CPU time that Redis has used, in seconds. Unlike elapsed time, it doesn't depend
// on the machine's other load.
func processor(t *testing.T, conn redis.Conn) (sum float64) {
	t.Helper()
	for line := range strings.SplitSeq(peertest.Info(t, conn, "cpu"), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			sum += redistest.Sure(strconv.ParseFloat(value, 64))(t)
		}
	}
	return sum
}

// searched waits until a search has seen all failed tasks.
func searched(t *testing.T, b *browser) {
	t.Helper()
	begun := time.Now()
	page := "failed?name=mails&reason=" + url.QueryEscape("no such thing")
	b.shows(page, "of "+words.Grouped(*scaleFailed)+" failed tasks match")
	seconds := time.Since(begun).Seconds()
	t.Logf("searched %d failed tasks in %.1f s: %.0f/s", *scaleFailed, seconds, float64(*scaleFailed)/seconds)
}

func fillQueues(t *testing.T, p *worqr.Peer, n int) {
	t.Helper()
	for i := range n {
		q := p.Queue(fmt.Sprint("queue-", i))
		for j := range 3 {
			peertest.Must(t, q.Enqueue(t.Context(), fmt.Appendf(nil, "task %d", j)))
		}
	}
}

// fillFailed makes tasks fail, for two reasons with numbers.
func fillFailed(t *testing.T, url, prefix string, n int) {
	t.Helper()
	p := redistest.Sure(worqr.Open(redistest.Worker(t, url, prefix), &worqr.Options{Prefix: prefix, Logger: slog.New(slog.DiscardHandler)}))(t)
	q := p.Queue("mails")
	q.Handle(func(_ context.Context, task *worqr.Task) error {
		if task.Token%5 == 0 {
			return worqr.Permanent(fmt.Errorf("disk %d is full", task.Token))
		}
		return worqr.Permanent(fmt.Errorf("no such mailbox: %d", task.Token))
	}, &worqr.HandleOptions{Concurrency: 256, KeepFailed: 2 * n})
	stop := peertest.Run(t, p)
	for done := 0; done < n; {
		payloads := make([][]byte, min(500, n-done))
		for i := range payloads {
			payloads[i] = fmt.Appendf(nil, `{"mail":%d}`, done+i)
		}
		done += len(payloads)
		peertest.Must(t, q.Enqueue(t.Context(), payloads...))
		if done%10_000 == 0 || done == n {
			peertest.Eventually(t, "the tasks have failed", func() bool { return peertest.Stats(t, q).Failed == done })
		}
	}
	stop()
	peertest.Must(t, p.Close())
}

// startWorkers starts peers, each of which serves a few queues.
func startWorkers(t *testing.T, url, prefix string, n, queues int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		p := redistest.Sure(worqr.Open(redistest.Worker(t, url, prefix), &worqr.Options{Prefix: prefix, Name: fmt.Sprint("peer-", i), Lease: time.Minute, Logger: slog.New(slog.DiscardHandler)}))(t)
		t.Cleanup(func() { _ = p.Close() })
		all.Go(func() {
			if err := p.StartWorker(t.Context()); err != nil {
				t.Error(err)
				return
			}
			for j := range 3 {
				if err := p.Queue(fmt.Sprint("queue-", (i+j)%queues)).StartWork(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// A search with the most expensive expression ends soon after its page is gone, and takes little of the processor's
// time until then. It isn't parallel, since it measures what the process uses.
func TestSearchEnds(t *testing.T) {
	server := redistest.Start(t)
	p := peertest.OpenDoctor(t, server.URL(), worqr.Options{Prefix: redistest.Prefix(t)})
	q := peertest.Working(t, p, "q")
	for range *scaleLarge {
		fail(t, q, strings.Repeat("x", 100_000), "no")
	}
	h := dash.New(p, nil)
	b := browsing(t, h)
	page := "failed?name=q&payload=" + url.QueryEscape("((x?){18}x?){10}y")
	_, stream, _ := strings.Cut(b.get(page).text, `data-stream="stream?`) // with the id of the search
	stream, _, _ = strings.Cut(html.UnescapeString(stream), `"`)
	if *scaleWhole {
		begun, before, last := time.Now(), used(t), ""
		for changed := range b.stream(t.Context(), stream) {
			if last = changed["failed-totals"]; dash.Searching(h) == 0 {
				break
			}
		}
		t.Logf("a watched search ended after %v and %v of the processor's time: %s", time.Since(begun).Round(time.Second), (used(t) - before).Round(time.Second), last)
		return
	}
	ctx, leave := context.WithCancel(t.Context())
	await(t, b.stream(ctx, stream), "failed-totals", "match")
	before, gone := used(t), time.Now()
	leave()
	peertest.Eventually(t, "the search has ended", func() bool { return dash.Searching(h) == 0 })
	cost := used(t) - before
	t.Logf("the search ended %v after its page was gone, and took %v of the processor's time", time.Since(gone).Round(time.Millisecond), cost.Round(time.Millisecond))
	if cost > time.Second {
		t.Errorf("the search took %v after its page was gone", cost)
	}
}

// used returns the processor's time that this process has used.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	peertest.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
