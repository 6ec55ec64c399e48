package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/integration/spec"
)

// What a payload says about its task, for the handlers and the judge.
const (
	withHeader = "+h" // it has a header, which is the payload
	withResult = "+k" // it keeps its result
	withExpiry = "+e" // it may expire
)

const kept = 4 * time.Minute // of results

// task returns a task whose properties depend on its payload.
func task(payload string, d *rand.Rand) (p worqr.TaskSpec) {
	p.Payload = []byte(payload)
	if strings.Contains(payload, withHeader) {
		p.Headers = map[string]string{"of": spec.Digest(payload)}
	}
	if strings.Contains(payload, withResult) {
		p.KeepResult = kept
	}
	if strings.Contains(payload, withExpiry) {
		p.Expires = time.Now().Add(time.Duration(d.ExpFloat64() * float64(4*time.Second)))
	}
	if d.IntN(4) == 0 {
		p.MaxRetries, p.Timeout = 3+d.IntN(2), 20*time.Second // as often as a task may fail
	}
	return p
}

// described returns a payload that describes the task's properties. Sometimes it is large.
func described(name string, d *rand.Rand) string {
	for _, what := range []string{withHeader, withResult, withExpiry} {
		if d.IntN(3) == 0 {
			name += what
		}
	}
	if d.IntN(10) == 0 {
		name += " " + strings.Repeat("x", 17<<10)
	}
	return name
}

// resultOf returns a handler's result for a task.
func resultOf(payload string) []byte { return []byte("made of " + spec.Digest(payload)) }

// actAdded is one action of a producer of added tasks.
func (r *run) actAdded(ctx context.Context, p *process, q *worqr.Queue, d *rand.Rand, name string) {
	switch d.IntN(6) {
	case 0:
		r.addMany(ctx, q, d, name)
	case 1:
		r.undo(ctx, p, d)
	default:
		r.add(ctx, p, q, d, name)
	}
}

// add adds a task, now or at a time, unique or not; a process may wait for its end.
func (r *run) add(ctx context.Context, p *process, q *worqr.Queue, d *rand.Rand, name string) {
	payload := described(name, d)
	one := task(payload, d)
	if d.IntN(3) == 0 {
		one.Once, one.OnceFor = name, 5*time.Minute
	}
	if d.IntN(4) == 0 {
		one.At = time.Now().Add(time.Duration((d.Float64() - 0.2) * float64(10*time.Second)))
	}
	var key string
	var err error
	for n := range 5 { // until the outcome is known, if possible
		before := key
		var keys []string
		keys, err = q.Add(ctx, one)
		if key = strings.Join(keys, ""); err != nil && key != "" {
			r.violation("the add of %.60s fails with %v, and returns the key %s", payload, err, key)
		}
		if err != nil && n > 0 { // an earlier call may have added it
			err = fmt.Errorf("%w: %w", worqr.ErrUnknownOutcome, err)
		}
		if err == nil && before != "" && before != key {
			r.violation("%.60s was added once, as %s and as %s", payload, before, key)
		}
		if one.Once == "" || !errors.Is(err, worqr.ErrUnknownOutcome) && (err != nil || d.IntN(3) > 0) || ctx.Err() != nil {
			break
		}
	}
	r.locked(func() { r.world.judge.told(payload, err) })
	if err != nil {
		return
	}
	r.locked(func() {
		if r.keys = append(r.keys, added{q.Name(), key}); len(r.keys) > 60 {
			r.keys = r.keys[30:]
		}
	})
	if one.KeepResult > 0 {
		p.waiting.Go(func() { r.wait(p.ctx, q, key, payload) })
	}
}

// An added task is known by its key.
type added struct{ queue, key string }

// addMany adds several tasks, all or none.
func (r *run) addMany(ctx context.Context, q *worqr.Queue, d *rand.Rand, name string) {
	var all []worqr.TaskSpec
	for i := range 2 + d.IntN(4) {
		payload := described(fmt.Sprintf("%s.%d", name, i), d)
		all = append(all, task(payload, d))
	}
	_, err := q.Add(ctx, all...)
	for _, t := range all {
		r.locked(func() { r.world.judge.told(string(t.Payload), err) })
	}
}

// undo cancels or removes a task that was added.
func (r *run) undo(ctx context.Context, p *process, d *rand.Rand) {
	var some added
	r.locked(func() {
		if len(r.keys) > 0 {
			some = r.keys[d.IntN(len(r.keys))]
		}
	})
	if some.key == "" {
		return
	}
	q := p.peer.Queue(some.queue)
	if d.IntN(3) == 0 {
		_, _ = q.RemoveKey(ctx, some.key)
		return
	}
	if report, err := q.CancelKey(ctx, some.key); err == nil {
		_ = report.Wait(ctx) // as long as ctx allows
	}
}

// wait waits for the end of a task that keeps its result. The answer must be true.
func (r *run) wait(ctx context.Context, q *worqr.Queue, key, payload string) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	end, err := q.Wait(ctx, key)
	r.locked(func() { r.world.judge.answered(payload, end, err) })
}

// answered processes the answer to a process that waited for an added task.
func (j *judge) answered(payload string, end *worqr.Result, err error) {
	ends := j.outcomes[payload]
	w := j.w
	switch {
	case w.Rollbacks+w.Wipes > 0: // it may have ended in what was lost
	case errors.Is(err, worqr.ErrNoResult) && (ends["deleted"] || w.Jumps > 0): // or the result has expired sooner
	case errors.Is(err, worqr.ErrNoResult):
		j.violation("waiting for the end of %.60s returned %v", payload, err)
	case err != nil: // it ran out of time
	case end.Outcome == worqr.OutcomeDeleted && (ends["deleted"] || w.Jumps > 0):
	case end.Outcome == worqr.OutcomeFinished && ends["finished"] && string(end.Value) == string(resultOf(payload)):
		j.Told++
	case end.Outcome == worqr.OutcomeCanceled && ends["canceled"], end.Outcome == worqr.OutcomeRemoved && ends["canceled"]:
		j.Told++
	case end.Outcome == worqr.OutcomeFailed && ends["failed"], end.Outcome == worqr.OutcomeExpired && ends["failed"]:
		j.Told++
	default:
		j.violation("waiting for the end of %.60s returned %s, with %q, but it ended as %v", payload, end.Outcome, end.Value, ends)
	}
}

// outcome records how a task has ended. The failed queue counts as an end, though the task may come back from
// there.
func (j *judge) outcome(payload, how string) {
	if !strings.Contains(payload, withResult) {
		return
	}
	if j.outcomes[payload] == nil {
		j.outcomes[payload] = map[string]bool{}
	}
	j.outcomes[payload][how] = true
}

// carries checks what a handler gets of a task besides its payload, and that the task hadn't expired when it was
// taken. A repeated round takes the time again, so the clock may have been set back in between.
func (j *judge) carries(t *worqr.Task) {
	payload := string(t.Payload)
	if j.expired[laneName(t.Queue, t.Failure != nil)+" "+t.AttemptID] && j.w.Jumps == 0 {
		j.violation("a handler of %.60s begins after it has expired", payload)
	}
	if isRecurring(payload) {
		return
	}
	want := ""
	if strings.Contains(payload, withHeader) {
		want = spec.Digest(payload)
	}
	if t.Headers["of"] != want {
		j.violation("a handler of %.60s has the headers %v", payload, t.Headers)
	}
	name := j.lane(t.Queue, t.Failure != nil).Name(t.AttemptID)
	if strings.HasPrefix(name, "k:") && t.Failure == nil && name != "k:"+t.Key {
		j.violation("a handler of %.60s has the key %q, and it is %s", payload, t.Key, name)
	}
}

// added: a call adds all its tasks, or none. One that has expired may start, but no handler runs it.
func (st *step) added() {
	r, is := st.r, st.is
	if r.verb == "add" && st.kind["tasks"] {
		for _, t := range r.call.Tasks() {
			payload := spec.ReadRecord(t.Record).Payload
			behind, _ := is.Behind(t.Name)
			if t.Nonce == "" && !t.Keep && is.Record(t.Name).Payload != payload && behind.Payload != payload {
				st.violation("%.60s isn't added to %s, and others are", payload, is.Queue)
			}
		}
	}
	for _, id := range st.began { // after a rollback, a round may come again, and start other tasks
		until := is.Record(is.Name(id)).Expires
		st.expired[st.name(id)] = !is.Failed && until > 0 && until <= st.ms()
	}
}
