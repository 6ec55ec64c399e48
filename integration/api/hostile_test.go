package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// rubbish returns messages that this library never sends.
func rubbish() []string {
	return []string{
		"", "0", "-1", "1", "99999999999999999999999999", "1e309", "NaN", " 7 ", "\x00\xff\xfe", "null", "{}", "[]",
		`{"workerId":1}`, `{"workerId":"w","task":"t"}`, `{"workerId":"w","task":"t","result":{}}`, `{"workerId":`,
		"\xff" + `{"workerId":"w","task":"` + "\xfe" + `"}`, strings.Repeat("[", 100_000), strings.Repeat("x", 1<<20), "a\r\nb",
	}
}

// Whatever is published on the channels of a queue, and on similar names, a peer keeps working and
// becomes idle again.
func TestHostileMessages(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 2})
	look, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p"})
	idle(t, q, 1)
	enqueue(t, q, "running")
	receive(t, starts, 1)

	const last = "that is all"
	said := 0
	for e := range each(t, look.Events(t.Context())) {
		if e.Kind == inspect.EventSync {
			for _, kind := range []string{"work", "enqueue", "done", "cancel", "delete", "wake", "wake:" + p.WorkerID(), "wake:nobody", "nonsense", ""} {
				for _, m := range rubbish() {
					for _, channel := range []string{"p_{q}_" + kind, "p_{}_" + kind, "p_{q\n}_" + kind, "p_{{q}_" + kind, "p_" + kind, "p:failed_{q}_" + kind} {
						redistest.Do(t, c, "PUBLISH", channel, m)
						said++
					}
				}
			}
			redistest.Do(t, c, "PUBLISH", "p_{q}_cancel", last)
		}
		if string(e.Payload) == last {
			break
		}
	}
	is.True(said > 1000)
	// The running tasks go on, and new ones run.
	is.Equal(len(causes), 0)
	enqueue(t, q, "next")
	receive(t, starts, 1)
	is.Equal(stats(t, q), inspect.QueueStats{Running: 2, Workers: 1})
	silent(t, server)
}

// A message with a huge count makes a peer look once, not that many times.
func TestHostileCounts(t *testing.T) {
	t.Parallel()
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour}) // no heartbeat is among the calls
	counting(t, p, "q", nil)
	idle(t, p.Queue("q"), 1)
	redistest.Do(t, c, "CONFIG", "RESETSTAT")
	for _, channel := range []string{"p_{q}_work", "p_{q}_wake:" + p.WorkerID()} {
		redistest.Do(t, c, "PUBLISH", channel, "999999999999")
	}
	eventually(t, "it has looked", func() bool { return redistest.Calls(t, c, "evalsha") > 0 })
	silent(t, server)
	if n := redistest.Calls(t, c, "evalsha"); n > 6 {
		t.Errorf("it looked %d times", n)
	}
}

// A cancel with a token that was never issued, which only a foreign writer can record, has no
// effect: it stops nothing that runs or starts, drops nothing that returns to the queue, and no
// peer asks about it. Check reports it.
func TestHostileCancels(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"1e15", "1e14", "9007199254740993", "inf"} {
		t.Run(token, func(t *testing.T) {
			is := parallel(t)
			server, c := redistest.StartAndDial(t)
			var beats, steps atomic.Int64
			link := &tamper{Url: server.URL(), Before: func(verb string, _ []any) error {
				switch verb {
				case "heartbeat":
					beats.Add(1)
				case "start", "finish":
					steps.Add(1)
				}
				return nil
			}}
			p := link.Open(t, worqr.Options{Prefix: "p", Lease: 900 * time.Millisecond})
			q := p.Queue("q")
			starts, causes := held(t, p, "q", &worqr.HandleOptions{Concurrency: 3})
			enqueue(t, q, "a")
			add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("b")})
			receive(t, starts, 2)
			for _, name := range []string{sha("a"), sha("c")} {
				redistest.Do(t, c, "SET", "p:canceled:{q}:"+name, token)
			}
			restful := func() {
				t.Helper()
				before, until := steps.Load(), beats.Load()+6
				eventually(t, "six beats", func() bool { return beats.Load() >= until })
				if n := steps.Load() - before; n > 3 { // left over from before, not one a beat
					t.Errorf("%d rounds in six beats, though there is nothing to say", n)
				}
			}
			restful()
			enqueue(t, q, "c") // needs a round, which could carry the cancel
			receive(t, starts, 1)
			restful()
			is.Equal(len(causes), 0)
			is.Equal(stats(t, q).Running, 3)
			is.NoErr(p.Shutdown(t.Context())) // what is canceled doesn't go back
			look := openAt(t, server.URL(), worqr.Options{Prefix: "p"}).Queue("q")
			is.Equal(append(waiting(t, look), namedPayloads(t, look)...), []string{"b"})
		})
	}
}

// Rubbish in keys that users can write: invalid queue names are skipped, tasks may be any bytes,
// and listings leave out what they can't decode.
func TestHostileKeys(t *testing.T) {
	t.Parallel()
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	p := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond})
	starts, _ := counting(t, p, "q", nil)
	q := p.Queue("q")
	idle(t, q, 1)
	for _, r := range rubbish() {
		redistest.DoAll(t, c, [][]any{
			{"SADD", prefix + ":registry", r}, {"SADD", prefix + ":workers", r},
			{"HSET", prefix + ":worker:" + r, "queues", r, "started", r, "pid", r},
			{"ZADD", prefix + ":idle:{q}", "1", r},
			{"LPUSH", prefix + ":queues:{q}", r},
		})
	}
	receive(t, starts, len(rubbish()))
	for name := range each(t, p.Queues(t.Context())) {
		if strings.ContainsAny(name, "{} \r\n\x00") || len(name) > 255 {
			t.Errorf("%.300q is named as a queue", name)
		}
	}
	for range each(t, p.Workers(t.Context())) {
	}
	sure(p.Sweep(t.Context()))(t)
	enqueue(t, q, "after")
	receive(t, starts, 1)
	eventually(t, "all is finished", func() bool { return stats(t, q).Running == 0 && stats(t, q).Waiting == 0 })
}

// Entries of the schedule with invalid numbers start once, as others do, with counts of 0. Members
// that were never entries are removed.
func TestHostileEntries(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	q := open(t, worqr.Options{Prefix: prefix, Lease: 300 * time.Millisecond}).Queue("q")
	counts := map[string]int{"1": 1} // the valid numbers among the rubbish
	want := map[string]int{}         // retries, by key
	hostile := map[string][2]string{ // keys, and what is written into them
		"due": {"tasks", "1:%s:0:0:0:0:x"}, "expires": {"tasks", "1:0:%s:0:0:0:x"}, "size": {"tasks", "1:0:0:0:0:%s:x"}, "record": {"tasks", "%s"},
		"retries": {"runs", ":%s:0:"}, "crashes": {"runs", ":0:%s:"}, "run": {"runs", "%s"},
	}
	for field := range hostile {
		for i, r := range rubbish() {
			number, err := strconv.ParseFloat(r, 64)
			if field == "crashes" && number > 1 || field == "expires" && number > 0 && err == nil {
				continue // its crash count, or its time, would fail it, correctly
			}
			key := fmt.Sprint(field, i)
			add(t, q, worqr.TaskSpec{Key: key, Payload: []byte(key)})
			redistest.Do(t, c, "HSET", prefix+":"+hostile[field][0]+":{q}", "k:"+key, fmt.Sprintf(hostile[field][1], r))
			if want[key] = 0; field == "retries" {
				want[key] = counts[r]
			}
			if i%2 == 0 { // again, over the rubbish
				add(t, q, worqr.TaskSpec{Key: key, Payload: []byte(key), Reschedule: worqr.RescheduleIfEarlier, KeepCounts: true})
			}
		}
	}
	for _, kind := range []string{"schedule", "ready", "risky"} {
		redistest.Do(t, c, "ZADD", prefix+":"+kind+":{q}", 1, "k:nothing", 1, "r:nothing", 1, "", 1, "\x00", "-inf", "k:never", 1, strings.Repeat("x", 1<<20))
	}

	type start struct {
		key     string
		retries int
	}
	started := make(chan start, 1000)
	var d diary
	serve := open(t, worqr.Options{Prefix: prefix, Lease: time.Hour, Logger: d.logger()}) // no slow heartbeat is logged
	serve.Queue("q").Handle(func(_ context.Context, t *worqr.Task) error {
		started <- start{t.Key, t.Retries}
		return nil
	}, nil)
	run(t, serve)
	got := map[string]int{}
	for _, s := range receive(t, started, len(want)) {
		got[s.key] = s.retries
	}
	is.Equal(got, want)
	eventually(t, "nothing is left", func() bool { s := stats(t, q); return s == inspect.QueueStats{Workers: 1, IdleWorkers: 1} })
	is.Equal(len(started), 0)
	is.True(!strings.Contains(d.String(), "level=WARN") && !strings.Contains(d.String(), "level=ERROR")) // no round failed
}

// The same for a running task: every way to end it works, and what was put in the meantime runs
// afterwards.
func TestHostileRunning(t *testing.T) {
	is := parallel(t)
	prefix, c := redistest.Prefix(t), redistest.Conn(t)
	q := working(t, open(t, worqr.Options{Prefix: prefix}), "q")
	ends := map[string]func(*worqr.Task) error{
		"finish": func(task *worqr.Task) error { return task.Finish(t.Context()) },
		"stop":   func(task *worqr.Task) error { return task.Stop(t.Context()) },
		"retry":  func(task *worqr.Task) error { return task.Retry(t.Context(), 0) },
	}
	for verb, end := range ends {
		for _, form := range [][2]string{{"runs", "@:%s:0:"}, {"runs", "@:0:%s:"}, {"tasks", "1:%s:0:0:0:0:a"}, {"tasks", "1:0:%s:0:0:0:a"}, {"tasks", "1:0:0:%s:0:0:a"}, {"tasks", "%s"}} {
			for _, r := range rubbish() {
				if counted := strings.TrimSpace(r); counted == "7" {
					continue // a valid count
				}
				add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("a")})
				task := take(t, q)
				add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("b")})
				redistest.Do(t, c, "HSET", prefix+":"+form[0]+":{q}", "k:key", fmt.Sprintf(strings.Replace(form[1], "@", task.AttemptID, 1), r))
				if err := end(task); err != nil {
					t.Fatalf("%s with %s %.20q: %v", verb, form, r, err)
				}
				task = take(t, q)
				is.Equal(string(task.Payload), "b")
				is.NoErr(task.Finish(t.Context()))
				is.Equal(stats(t, q), inspect.QueueStats{Workers: 1})
			}
		}
	}
}

// Huge registrations, invalid ids and very many names are read in pieces of bounded size, and don't
// hide the peers.
func TestHostileRoster(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p", Lease: time.Hour})
	working(t, p, "q")
	huge := strings.Repeat("x", 8<<20)
	for i, cmd := range [][]any{
		{"HSET", "p:worker:w1", "name", huge}, {"HSET", "p:worker:w2", "queues", "[" + strings.Repeat(`"q",`, 1<<20) + `"q"]`}, {"HSET", "p:worker:w3", "a", huge, "b", huge, "name", "w3"},
		{"SET", "p:worker:w4", huge}, {"SADD", "p:workers", "w1", "w2", "w3", "w4", "queues:{q}", "a:b", strings.Repeat("y", 1<<20), "", "x y", "x\x1b"},
		{"EVAL", "for i = 1, 100000 do redis.call('HSET', 'p:worker:w5', i, '') end redis.call('SADD', 'p:workers', 'w5')", 0},
		{"EVAL", "for i = 1, 20000 do redis.call('SADD', 'p:registry', 'queue' .. i) end", 0},
		{"EVAL", "for i = 1, 10000 do redis.call('SADD', 'p:workers', 'worker' .. i) end", 0},
	} {
		if _, err := c.Do(cmd[0].(string), cmd[1:]...); err != nil {
			t.Fatal(i, err)
		}
	}
	redistest.Do(t, c, "CONFIG", "RESETSTAT")
	var ids []string
	for w := range each(t, p.Workers(t.Context())) {
		ids = append(ids, w.ID)
	}
	is.Equal(slices.Sorted(slices.Values(ids)), slices.Sorted(slices.Values([]string{p.WorkerID(), "w3"})))
	sent := 0
	sure(fmt.Sscan(field(t, c, "stats", "total_net_output_bytes"), &sent))(t)
	if sent > 4<<20 { // 1 MiB of one hostile id, and 10,000 short ones with the lengths of their fields
		t.Errorf("%d bytes were read", sent)
	}
	is.Equal(sure(length(p.Queues(t.Context())))(t), 20_001)
	report := sure(openDoctor(t, server.URL(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond}).Check(t.Context(), nil))(t)
	is.Equal(report.Queues, 1)
	is.True(len(report.Findings) <= 1000)
}

// A flood of large messages isn't kept for a reader that doesn't read, whichever part of them is
// large. The reader learns that it has missed some.
func TestHostileEvents(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 1<<20)
	t.Run("payload", func(t *testing.T) { hostileEvents(t, "cancel", large) })
	t.Run("worker", func(t *testing.T) { hostileEvents(t, "done", fmt.Sprintf(`{"workerId":%q,"task":"a"}`, large)) })
}

func hostileEvents(t *testing.T, kind, message string) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	p := openAt(t, server.URL(), worqr.Options{Prefix: "p"})
	redistest.Do(t, c, "CONFIG", "SET", "client-output-buffer-limit", "pubsub 0 0 0") // so that Redis doesn't end it
	const last = "that is all"
	syncs, payloads := 0, 0
	for e := range each(t, p.Events(t.Context(), "q")) {
		if e.Kind == inspect.EventSync {
			syncs++
		}
		if syncs == 1 && payloads == 0 { // the reader is busy here, so it doesn't read
			for range 60 {
				redistest.Do(t, c, "PUBLISH", "p_{q}_"+kind, message)
			}
			redistest.Do(t, c, "PUBLISH", "p_{q}_cancel", last)
			eventually(t, "all but what sockets hold has been read", func() bool {
				return strings.Contains(sure(redis.String(c.Do("CLIENT", "LIST", "TYPE", "pubsub")))(t), " omem=0 ")
			})
		}
		payloads++
		if string(e.Payload) == last {
			break
		}
	}
	is.True(syncs > 1)
	is.True(payloads < 40) // of 1 MiB each
}

// field returns a field of the server's INFO.
func field(t testing.TB, c redis.Conn, section, name string) string {
	t.Helper()
	_, rest, _ := strings.Cut(info(t, c, section), "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// If somebody changes a record so that a result is kept only for a moment, Wait doesn't poll in
// a tight loop.
func TestHostileKeep(t *testing.T) {
	is := parallel(t)
	server, c := redistest.StartAndDial(t)
	_, q := openQueueAt(t, server.URL(), worqr.Options{Prefix: "p"})
	add(t, q, worqr.TaskSpec{Key: "k", Payload: []byte("a"), At: time.Now().Add(time.Hour), KeepResult: time.Minute})
	redistest.Do(t, c, "HSET", "p:tasks:{q}", "k:k", "1:0:0:1:0:0:a")
	ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
	defer end()
	before := redistest.Calls(t, c, "evalsha")
	_, err := q.Wait(ctx, "k")
	is.True(err != nil)
	if n := redistest.Calls(t, c, "evalsha") - before; n > 20 {
		t.Errorf("it asked %d times in two seconds", n)
	}
}
