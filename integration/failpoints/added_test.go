package failpoints_test

import (
	"slices"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// additions are calls about added tasks, schedules and results.
var additions = []*scenario{
	{
		name: "add", wire: "add", late: []string{"x"}, again: []string{"x"},
		call: func(v *victim) error {
			return peertest.Failure(v.queue.Add(v.ctx, worqr.TaskSpec{Payload: []byte("x"), Headers: map[string]string{"of": "x"}}))
		},
		left: either(added(0), []string{"x", "a", "b", "c"}),
	},
	{
		name: "add once", wire: "add", late: []string{"x"},
		call: func(v *victim) error {
			return peertest.Failure(v.queue.Add(v.ctx, worqr.TaskSpec{Payload: []byte("x"), Once: "once"}))
		},
		left: either(added(0), []string{"x", "a", "b", "c"}),
	},
	starting(scenario{name: "start of added tasks", seed: func(w *world) { w.add("a", "b", "c") }}),
	finishing(scenario{name: "finish of an added task", seed: func(w *world) { w.add("a", "b", "c") }}),
	finishing(scenario{
		name: "finish with a result that is kept", call: withResult,
		seed: func(w *world) {
			w.keep("a")
			w.enqueue("b", "c")
		},
		after: func(w *world, n int) { w.result("a", n > 0) },
	}),
	// Its next time is an hour later.
	starting(scenario{name: "start of an occurrence", named: []string{"a"}, seed: occurrence, ended: func(w *world) { w.retire("a") }}),
	finishing(scenario{name: "finish of an occurrence", seed: occurrence, ended: func(w *world) { w.retire("a") }}),
}

// occurrence makes "a" recur, and enqueues b and c behind it.
func occurrence(w *world) {
	w.recurs("a")
	w.enqueue("b", "c")
}

// add adds tasks, as Add does.
func (w *world) add(payloads ...string) {
	w.t.Helper()
	for _, p := range payloads {
		redistest.Sure(w.queue.Add(w.t.Context(), worqr.TaskSpec{Payload: []byte(p)}))(w.t)
	}
}

// keep puts a payload under itself as a key, and makes the task keep its result.
func (w *world) keep(payload string) {
	w.t.Helper()
	redistest.Sure(w.queue.Add(w.t.Context(), worqr.TaskSpec{Key: payload, Payload: []byte(payload), KeepResult: time.Hour}))(w.t)
}

// result checks whether a task has a result.
func (w *world) result(key string, finished bool) {
	w.t.Helper()
	switch r, err := w.queue.Result(w.t.Context(), key); {
	case !finished && err == nil:
		w.t.Errorf("%s has ended as %+v", key, r)
	case finished && (err != nil || r.Outcome != worqr.OutcomeFinished || string(r.Value) != "result"):
		w.t.Errorf("%s has ended as %+v, and %v", key, r, err)
	}
}

// recurs makes a payload recur under itself as a key: now, and in an hour.
func (w *world) recurs(payload string) {
	w.t.Helper()
	dial := redistest.Sure(store.Open(redistest.URL(), store.Access{}))(w.t).Dial()
	line := redisconn.NewLine(dial, 0)
	defer line.Close()
	record, print := store.Record{Payload: []byte(payload)}, "1:0000000000000000000000000000000000000000"
	assert := func(s store.Schedule) store.Asserted {
		s.Name, s.Prints = store.NameOf(payload), []string{print}
		told, _, _, err := store.Recur(w.t.Context(), line, w.keys, time.Hour.Milliseconds(), 0, []store.Schedule{s})
		peertest.Must(w.t, err)
		return told[0]
	}
	for soon := int64(100); ; soon *= 2 { // the call must arrive before that time
		first := assert(store.Schedule{})
		at := w.now() + soon
		held := assert(store.Schedule{Since: first.Since, Times: []int64{at, at + time.Hour.Milliseconds()}, Record: record.Append(nil)})
		if held.Word != store.ScheduleHeld {
			w.t.Fatalf("the schedule is %s", held.Word)
		}
		all := slices.Collect(redistest.Each(w.t, w.queue.Recurring(w.t.Context())))
		if len(all) == 1 && all[0].Next.UnixMilli() == at {
			peertest.Eventually(w.t, "the first time has come", func() bool { return w.now() >= at })
			return
		}
		w.retire(payload)
	}
}

// retire checks that exactly the next occurrence of a schedule is scheduled, and removes both.
func (w *world) retire(key string) {
	w.t.Helper()
	all := slices.Collect(redistest.Each(w.t, w.queue.Recurring(w.t.Context())))
	if len(all) != 1 || all[0].Key != key || all[0].Next.UnixMilli() < w.now() || !all[0].Current.IsZero() {
		w.t.Errorf("the schedules are %+v", all)
	}
	if !redistest.Sure(w.queue.RemoveKey(w.t.Context(), key))(w.t) {
		w.t.Error("the next occurrence is not planned")
	}
	w.do("DEL", w.keys.Recurring(), w.keys.Recurrence())
}
