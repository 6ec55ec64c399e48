package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

func failedText(f FailedTask) string {
	return fmt.Sprintf("%s=%s:%s", f.Name[:2], f.Record.Payload, f.Record.Failure.Error)
}

// fail makes tasks fail, one after the other.
func (b *bench) fail(payloads ...string) {
	b.Helper()
	for _, p := range payloads {
		if key, named := strings.CutPrefix(p, "k:"); named {
			b.add(task(key, p))
		} else {
			b.enqueue(p)
		}
		b.finish("w", End{Verb: Fail, Kind: Failed, Reason: "why " + p}, b.start("w", 1)...)
	}
}

// Failed tasks are listed newest first, those that were set aside before the others, and go back.
func TestFailed(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	b.fail("a", "k:b", "c", "k:d")
	list := func() string { return all(t, FailedTasks(ctx, b.line, b.q), failedText) }
	b.is.Equal(list(), "k:=k:d:why k:d r:=c:why c k:=k:b:why k:b r:=a:why a")

	failed := &bench{t, b.is, b.conn, b.line, b.space, b.q.Failed()}
	first := failed.start("v", 1) // the handler of the failed queue
	b.is.Equal(list(), "k:=k:d:why k:d r:=c:why c k:=k:b:why k:b")
	got, err := RequeueAll(ctx, &during{b.line, 3, func() { b.fail("late") }}, b.q)
	b.is.NoErr(err)
	b.is.Equal(got, Requeued{Requeued: 3})
	b.is.Equal(list(), "r:=late:why late")
	b.is.Equal(all(t, Named(ctx, b.line, b.q), func(n NamedTask) string { return n.Name }), "k:d k:b")

	failed.finish("v", End{Verb: Fail, Kind: Failed, Reason: "again"}, first...)
	b.is.Equal(list(), "r:=a:why a r:=late:why late")
	got, err = Requeue(ctx, b.line, b.q, []string{"nothing", first[0].Name})
	b.is.NoErr(err)
	b.is.Equal(got, Requeued{Requeued: 1})
	n, err := DeleteAllFailed(ctx, b.line, b.q)
	b.is.NoErr(err)
	b.is.Equal(n, 1)
	b.is.Equal(list(), "")
	b.is.Equal(redistest.Sure(Requeue(ctx, b.line, b.q, nil))(t), Requeued{})
}

// However many of a round fail, the failed queue has at most MaxFailed tasks after it.
func TestMaxFailed(t *testing.T) {
	b := newBench(t)
	for range 10 {
		b.enqueue(make([]string, 128)...)
		b.finish("w", End{Verb: Fail, Kind: Failed}, b.start("w", 128)...)
		b.is.True(b.do("ZCARD failed.ready").(int64) <= 1000)
	}
}

// A task whose name another one has taken, or which a handler runs, stays failed.
func TestRequeueTaken(t *testing.T) {
	b := newBench(t)
	b.fail("k:a", "k:b")
	b.add(task("a", "new"))
	failed := &bench{t, b.is, b.conn, b.line, b.space, b.q.Failed()}
	running := failed.start("v", 1)
	var names []string
	for f := range redistest.Each(t, FailedTasks(t.Context(), b.line, b.q)) {
		names = append(names, f.Name)
	}
	b.is.Equal(len(names), 1)
	got, err := Requeue(t.Context(), b.line, b.q, append(names, running[0].Name))
	b.is.NoErr(err)
	b.is.Equal(got.Running, 1)
	b.is.Equal(got.Requeued+got.Taken, 1)
	n, err := DeleteFailed(t.Context(), b.line, b.q, []string{running[0].Name})
	b.is.True(err == nil && n == 0)
}

// Failed tasks are listed, requeued and deleted over several pages, also large ones.
func TestManyFailed(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	large := strings.Repeat("x", 600_000)
	for i := range 3 * perPage {
		name, head, payload := fmt.Sprintf("r:%040d:%d", 0, i+1), "failed:5:w:a:0:0:0:1:e", "p"
		if i%perPage == 0 {
			payload = large
		}
		redistest.Do(t, b.conn, "HSET", b.q.Failed().Tasks(), name, fmt.Sprintf("1:2:3:4:0:%d:%s%s", len(head), head, payload))
		redistest.Do(t, b.conn, "ZADD", b.q.Failed().Ready(), i+1, name)
	}
	n := 0
	for f := range redistest.Each(t, FailedTasks(ctx, b.line, b.q)) {
		b.is.Equal(f.Record.Failure.Error, "e")
		n++
	}
	b.is.Equal(n, 3*perPage)
	some := fmt.Sprintf("r:%040d:%d", 0, 1)
	got, err := Requeue(ctx, b.line, b.q, slices.Repeat([]string{some}, 2))
	b.is.NoErr(err)
	b.is.Equal(got.Requeued, 1)
	got, err = RequeueAll(ctx, b.line, b.q)
	b.is.NoErr(err)
	b.is.Equal(got.Requeued, 3*perPage-1)
	b.is.Equal(b.do("LLEN queues"), int64(3*perPage))
}

// A failed record says why and how, and its properties follow.
func TestFailedRecord(t *testing.T) {
	b := newBench(t)
	one := task("k", "payload")
	one.Record.Metadata = Metadata{Timeout: time.Second, Headers: map[string]string{"h": "v"}}
	b.add(one)
	b.finish("w", End{Verb: Fail, Kind: Crashed, Reason: "re:ason"}, b.start("w", 1)...)
	for f := range redistest.Each(t, FailedTasks(t.Context(), b.line, b.q)) {
		why := f.Record.Failure
		b.is.Equal(fmt.Sprint(why.Kind, why.Worker, why.Back, why.Error), "crashedwk:kre:ason")
		b.is.Equal(f.Record.Metadata.Headers["h"]+string(f.Record.Payload), "vpayload")
		b.is.Equal(f.Record.Metadata.Timeout, time.Second)
		b.is.True(!f.Record.Damaged)
	}
}
