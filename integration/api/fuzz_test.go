package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// FuzzOpen checks that a password appears in no error, log or text of a peer, whatever surrounds it
// and whatever the options are.
func FuzzOpen(f *testing.F) {
	f.Add("redis://", "@127.0.0.1:1/0", "worqr", "name", int64(0))
	f.Add("rediss://user", "@127.0.0.1:1", "a{b}", "", int64(1))
	f.Add("unix://", "@/nowhere?db=x", "", "", int64(-1))
	f.Add("redis://:x@127.0.0.1:1/", "", " ", "\n", int64(1<<62))
	f.Add("redis://user:p@ss#w/", "@localhost:7391", "worqr", "", int64(0))
	f.Add("redis://:12?", "@localhost:7391", "worqr", "", int64(0))
	f.Add("redis+sentinel://user", "@127.0.0.1:1,[::1]:1/main/1?sentinel=x", "", "", int64(0))
	f.Add("rediss+sentinel://127.0.0.1:1/main?sentinel=user", "", "", "", int64(0))
	f.Add("redis+cluster://", "@127.0.0.1:1,127.0.0.1:2", "", "", int64(0))
	f.Fuzz(func(t *testing.T, before, after, prefix, name string, lease int64) {
		const canary = "c4n4ryp4ssw0rd"
		if strings.Contains(prefix+name, "c4n4") {
			return
		}
		var log bytes.Buffer
		opts := &worqr.Options{Prefix: prefix, Name: name, Lease: time.Duration(lease), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		texts := []string{}
		for _, url := range []string{before + ":" + canary + after, before + canary + "@" + after} {
			p, err := worqr.Open(url, opts)
			if texts = append(texts, fmt.Sprint(err)); p != nil {
				_, bad := p.Queue("q").Stats(ended)
				texts = append(texts, fmt.Sprintf("%v %+v %#v", p, p, p.Queue("q")), fmt.Sprint(bad), fmt.Sprint(p.Close()))
			}
		}
		for _, text := range append(texts, log.String()) {
			if strings.Contains(text, canary) {
				t.Errorf("it is shown: %s", text)
			}
		}
	})
}

// ended is a context that has ended, so that nothing is sent.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// FuzzPayload checks that any payload, of any length, stays the same through everything that can
// happen to a task.
func FuzzPayload(f *testing.F) {
	f.Add([]byte("a"), uint8(1))
	f.Add([]byte("\x00\xff\r\n$1\r\n\xc3\x28false=nil"), uint8(4))
	f.Add(bytes.Repeat([]byte("ab"), 3000), uint8(3))
	f.Add([]byte{}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, parts uint8) {
		p := open(t, worqr.Options{Lease: time.Hour})
		q, ctx := working(t, p, "q"), t.Context()
		n := int(parts%16) + 1
		all := make([]string, n)
		for i := range n {
			all[i] = string(data[len(data)*i/n : len(data)*(i+1)/n])
		}
		first, last := all[0], all[n-1]
		same := func(where string, got []string, want ...string) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Fatalf("%s: %q, want %q", where, got, want)
			}
		}
		start := func(where string, want ...string) []*worqr.Task {
			t.Helper()
			tasks := sure(q.StartTasks(ctx, len(want)))(t)
			same(where, payloads(tasks), want...)
			return tasks
		}
		enqueue(t, q, all...)
		for _, task := range slices.Backward(start("started", all...)) {
			must(t, task.Stop(ctx))
		}
		same("stopped", waiting(t, q), all...)
		tasks := start("started again", all...)
		must(t, tasks[0].Retry(ctx, 0))
		must(t, start("retried", first)[0].Fail(ctx, errors.New("no")))
		same("failed", failedPayloads(t, q), first)
		sure(q.RequeueAllFailed(ctx))(t)
		must(t, start("requeued", first)[0].Finish(ctx))
		for _, task := range tasks[1:] {
			must(t, task.Finish(ctx))
		}
		mine := []byte(first)
		sure(q.Add(ctx, worqr.TaskSpec{Key: "key", Payload: mine}))(t)
		clear(mine) // the buffer may be reused now
		must(t, start("put", first)[0].Fail(ctx, errors.New("no")))
		same("failed under a key", failedPayloads(t, q), first)
		sure(q.DeleteAllFailed(ctx))(t)
		sure(q.Add(ctx, worqr.TaskSpec{Payload: []byte(first), Unique: true}))(t)
		if _, err := q.Add(ctx, worqr.TaskSpec{Payload: []byte(first), Unique: true}); !is_(err, worqr.ErrDuplicate) {
			t.Fatalf("an equal one: %v", err)
		}
		must(t, start("unique", first)[0].Finish(ctx))
		enqueue(t, q, all...)
		copies := len(all) - len(slices.DeleteFunc(slices.Clone(all), func(one string) bool { return one == last }))
		if report := cancel(t, q, last); report.Removed != copies {
			t.Fatalf("%d copies of %q were canceled, of %d", report.Removed, last, copies)
		}
		must(t, q.Delete(ctx))
		must(t, p.Close())
	})
}

// FuzzJSON checks that a payload that isn't a T is malformed, and that the error quotes nothing of
// it.
func FuzzJSON(f *testing.F) {
	type job struct {
		Name  string            `json:"name"`
		Count int8              `json:"count"`
		More  map[string][]uint `json:"more"`
	}
	for _, seed := range []string{`{"name":"a","count":1}`, `{"count":300}`, `{"more":{"x":[-1]}} x`, "", "\xff", `[[[[`, `"secret`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		called := false
		err := worqr.JSON(func(context.Context, job, *worqr.Task) error { called = true; return nil })(t.Context(), &worqr.Task{Payload: data})
		var v job
		good := json.Unmarshal(data, &v) == nil
		if good != called || good != (err == nil) {
			t.Errorf("%q: called %t, %v", data, called, err)
		}
		if text := string(data); err != nil && len(text) > 12 && strings.Contains(err.Error(), text) {
			t.Errorf("%q is quoted: %v", data, err)
		}
	})
}
