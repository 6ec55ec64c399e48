package api

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/keys"
)

// The part of TestRandom that is about added tasks.

// some returns a payload, sometimes one so large that it is stored outside the stream.
func (f *fleet) some() string {
	if p := f.payload(); f.r.IntN(8) > 0 {
		return p
	}
	return strings.Repeat(f.payload(), 17<<10)
}

// short shortens a payload for the log.
func short(payload string) string {
	if len(payload) < 20 {
		return payload
	}
	return fmt.Sprintf("%d bytes of %.3s…", len(payload), payload)
}

// shorts shortens the payloads of tasks for the log.
func shorts(tasks []*worqr.Task) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, p := range payloads(tasks) {
			if !yield(short(p)) {
				return
			}
		}
	}
}

// properties returns random properties, and the card for them as docs/protocol.md describes it.
// Most have only some.
func (f *fleet) properties() (p worqr.TaskSpec, card string) {
	flags, numbers, rest := 0, "", ""
	switch f.r.IntN(12) {
	case 0:
		p.Expires = f.start.Add(-time.Minute) // it never starts
	case 1, 2, 3:
		p.Expires = f.start.Add(time.Duration(100+f.r.IntN(9)) * time.Hour)
	}
	if !p.Expires.IsZero() {
		flags, numbers = 1, fmt.Sprintf("%016d", p.Expires.UnixMilli())
	}
	if f.r.IntN(2) == 0 {
		p.KeepResult = time.Hour
		flags, numbers = flags+4, numbers+fmt.Sprintf("%010d", p.KeepResult.Milliseconds())
	}
	if f.r.IntN(3) == 0 {
		value := f.payload()
		p.Headers, rest = map[string]string{"of": value}, "h2:ofv1:"+value
	}
	return p, fmt.Sprint(flags, numbers, rest)
}

func (f *fleet) add() {
	was, payload := f.view(false), f.some()
	task, card := f.properties()
	task.Payload = []byte(payload)
	key := sure(f.q.Add(f.ctx, task))(f.t)
	f.note("add %s with %s: %s", short(payload), card, key)
	f.wereAdded(was, key, []worqr.TaskSpec{task}, []string{card, payload})
}

func (f *fleet) addMany() {
	was := f.view(false)
	var tasks []worqr.TaskSpec
	var sent []string
	for range 2 + f.r.IntN(2) {
		payload := f.some()
		task, card := f.properties()
		task.Payload = []byte(payload)
		tasks, sent = append(tasks, task), append(sent, card, payload)
	}
	all := sure(f.q.Add(f.ctx, tasks...))(f.t)
	f.note("add %d: %s", len(tasks), all)
	f.wereAdded(was, all, tasks, sent)
}

// wereAdded checks that tasks with these keys wait behind the earlier ones, with the cards and
// payloads (in turn) that were sent.
func (f *fleet) wereAdded(was *lane.Lane, all []string, tasks []worqr.TaskSpec, sent []string) {
	f.t.Helper()
	f.called("add", "window", 0, "task…", sent)
	is := f.view(false)
	waiters := is.Waiters()
	f.same("waited before", entriesOf(waiters[:min(len(was.Added), len(waiters))]), entriesOf(was.Waiters()))
	var want, got []string
	for i, key := range all {
		f.wanted[key] = tasks[i]
		want = append(want, fmt.Sprintln("k:"+key, sent[2*i], sent[2*i+1]))
	}
	for _, w := range waiters[min(len(was.Added), len(waiters)):] {
		card := w.Card
		if w.Apart {
			card = string(card[0]-2) + card[1:]
		}
		got = append(got, fmt.Sprintln(w.Entry, card, payloadOf(is, w)))
		f.check(w.Apart == (len(payloadOf(is, w)) > 16<<10), "%s is apart: %v", w.Entry, w.Apart)
	}
	f.same("added", got, want)
}

func entriesOf(waiters []lane.Waiter) (all []string) {
	for _, w := range waiters {
		all = append(all, w.Entry)
	}
	return all
}

// payloadOf returns the payload of a task in the stream.
func payloadOf(l *lane.Lane, w lane.Waiter) string {
	if w.Apart {
		return l.Entry[w.Entry]["payload"]
	}
	return w.Payload
}

// waits reports whether a task of an entry waits, in the schedule or in the stream.
func waits(l *lane.Lane, entry string) bool {
	_, there := l.Entry[entry]["payload"]
	return there || slices.Contains(entriesOf(l.Waiters()), entry)
}

// isHeld reports whether a task of an entry runs.
func isHeld(l *lane.Lane, entry string) bool {
	return slices.Contains(slices.Collect(maps.Values(l.Entries)), entry)
}

// keyOf returns the key of an entry; "" if it has none.
func keyOf(entry string) string {
	if lane.IsKey(entry) {
		return entry[2:]
	}
	return ""
}

// anyKey returns one of the keys under which a task waits or runs; "" if there are none.
func (f *fleet) anyKey() string {
	is := f.view(false)
	all := slices.Concat(slices.Collect(maps.Keys(is.Schedule)), entriesOf(is.Waiters()), slices.Collect(maps.Values(is.Entries)))
	all = slices.DeleteFunc(all, func(entry string) bool { return !lane.IsKey(entry) })
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return keyOf(all[f.r.IntN(len(all))])
}

// hasProperties checks that a started task has the properties that it was added with, or none if it
// has no card, since puts have none here.
func (f *fleet) hasProperties(is *lane.Lane, task *worqr.Task) {
	f.t.Helper()
	var want worqr.TaskSpec
	if is.Card(task.AttemptID) != "" {
		want = f.wanted[task.Key]
	}
	f.check(maps.Equal(task.Headers, want.Headers), "%s has %v, want %v", task.AttemptID, task.Headers, want.Headers)
	if lane.HasFlag(is.Card(task.AttemptID), 1) {
		f.check(want.Expires.After(f.start), "%s has started, and expires at %v", task.AttemptID, want.Expires)
	}
	if is.AddedName(task.AttemptID) != "" {
		at, _ := keys.AddedAt(task.Key)
		f.check(task.EnqueuedAt.Equal(at) && task.DueAt.Equal(at), "%s was added at %v, and tells %v and %v", task.AttemptID, at, task.EnqueuedAt, task.DueAt)
	}
}

// hasResult checks the result of an ended task that keeps its result. Finish wins over an earlier
// cancel.
func (f *fleet) hasResult(was *lane.Lane, before string, task *worqr.Task, verb string, canceled bool) {
	f.t.Helper()
	if !lane.HasFlag(was.Card(task.AttemptID), 4) {
		return
	}
	var want worqr.Result
	switch {
	case verb == "finish":
		want = worqr.Result{Outcome: worqr.OutcomeFinished, Value: task.Result, Size: len(task.Result)}
	case canceled:
		want = worqr.Result{Outcome: worqr.OutcomeCanceled}
	case verb == "fail":
		want = worqr.Result{Outcome: worqr.OutcomeFailed, Error: "some-reason"}
	default: // it goes on, unless a later put replaces it
		put := was.Entry["k:"+task.Key]
		_, replaced := put["payload"]
		f.check(replaced || f.record(task.Key) == before, "%s goes on, and has the result %q", task.Key, f.record(task.Key))
		return
	}
	got := sure(f.q.Result(f.ctx, task.Key))(f.t)
	f.check(got.EndedAt.After(f.start), "%s has ended at %v", task.Key, got.EndedAt)
	got.EndedAt = time.Time{}
	f.check(fmt.Sprintf("%+q", resultWords(got)) == fmt.Sprintf("%+q", resultWords(&want)), "%s: %q, want %q", task.Key, resultWords(got), resultWords(&want))
}

func resultWords(r *worqr.Result) []string {
	return []string{string(r.Outcome), string(r.Value), fmt.Sprint(r.Size), r.Error}
}

// record returns what Redis stores about the end of a key's last task: outcome, time, length of the
// error, error and result; "" if there is none.
func (f *fleet) record(key string) string {
	record, _ := f.holds().Get(f.prefix + ":result:{q}:k:" + key).(string)
	return record
}

// results compares the result that the library returns for one key with its record.
func (f *fleet) results() {
	t := f.t
	t.Helper()
	key := f.key()
	if all := slices.Sorted(maps.Keys(f.wanted)); len(all) > 0 && f.r.IntN(2) == 0 {
		key = all[f.r.IntN(len(all))]
	}
	is, parts := f.view(false), strings.SplitN(f.record(key), ":", 4)
	got, err := f.q.Result(f.ctx, key)
	switch {
	case len(parts) < 4 && (waits(is, "k:"+key) || isHeld(is, "k:"+key)):
		f.check(is_(err, worqr.ErrNotEnded), "%s waits or runs, and its result is %+v, %v", key, got, err)
	case len(parts) < 4:
		f.check(is_(err, worqr.ErrNoResult), "%s is unknown, and its result is %+v, %v", key, got, err)
	default:
		must(t, err)
		told := []string{string(got.Outcome), fmt.Sprint(got.EndedAt.UnixMicro()), fmt.Sprint(len(got.Error)), got.Error}
		parts[3] = parts[3][:min(number(parts[2]), len(parts[3]))]
		f.same("Result of "+key, told, parts)
	}
}

// addedOut compares waiting added tasks, and running tasks, with what is in Redis.
func (f *fleet) addedOut(is *lane.Lane) {
	t := f.t
	t.Helper()
	var told, want []string
	row := func(key, payload string, headers map[string]string, at, expires time.Time) string {
		return fmt.Sprintln(key, payload, headers, at.UnixMilli(), expires.UnixMilli())
	}
	for a := range each(t, f.q.Added(f.ctx)) {
		told = append(told, row(a.Key, string(a.Payload), a.Headers, a.EnqueuedAt, a.Expires))
	}
	for _, w := range is.Waiters() {
		props := f.wanted[keyOf(w.Entry)]
		at, _ := keys.AddedAt(keyOf(w.Entry))
		want = append(want, row(keyOf(w.Entry), payloadOf(is, w), props.Headers, at, props.Expires))
	}
	f.same("Added", told, want)
	told, want = nil, nil
	for r := range each(t, f.q.Running(f.ctx)) {
		told = append(told, fmt.Sprintln(r.AttemptID, r.WorkerID, string(r.Payload), r.Key, r.Token, r.Retries, r.Headers))
	}
	for id, payload := range is.Process {
		entry, headers := is.Entries[id], map[string]string(nil)
		if is.Card(id) != "" {
			headers = f.wanted[keyOf(entry)].Headers
		}
		want = append(want, fmt.Sprintln(id, is.Owner[id], payload, keyOf(entry), is.TokenOf(id), number(is.Entry[entry]["tried"]), headers))
	}
	f.same("Running", sorted(told), sorted(want))
}
