package spec

import (
	"cmp"
	"fmt"
	"strings"
)

// An End ends an attempt. A plain one has only an attempt and a token.
type End struct {
	Attempt        string
	Token          int64
	Identity, Verb string // the name, or "d:" and the digest
	Delay          int64
	Text           string
}

// Words returns a finish in the words of a scenario.
func Words(worker string, ends []End) string {
	count, plain, others := 0, "", ""
	for _, e := range ends {
		if e.Verb == "" {
			count++
			plain += fmt.Sprintf(" %s %d", e.Attempt, e.Token)
		} else {
			others += fmt.Sprintf(" %s %d %s %s %d %s", e.Attempt, e.Token, e.Identity, e.Verb, e.Delay, cmp.Or(e.Text, "''"))
		}
	}
	return fmt.Sprintf("finish worker=%s plain=%d%s%s", worker, count, plain, others)
}

// What became of an end.
const (
	OK       = "ok"
	Gone     = "gone"     // it had ended before
	Canceled = "canceled" // it didn't come back
)

// Finish ends attempts, and returns what became of each.
func (q *Queue) Finish(worker string, ends []End) (became []string, err error) {
	if !q.Workers.Has(worker) {
		return nil, ErrEvicted
	}
	n, failing := newNotice(), false
	became = make([]string, len(ends))
	for i := range ends {
		if ends[i].Verb == "" {
			became[i] = q.end(n, worker, &ends[i])
		}
	}
	for i := len(ends) - 1; i >= 0; i-- { // so that tasks that are stopped in order come back in order
		if ends[i].Verb != "" {
			became[i] = q.end(n, worker, &ends[i])
			failing = failing || became[i] == OK && ends[i].Verb == "fail"
		}
	}
	q.tell(n)
	if failing && q.Failed != nil {
		q.Failed.Wake(1)
	}
	return became, nil
}

// end ends one attempt.
func (q *Queue) end(n *notice, worker string, e *End) string {
	token, is := q.working(worker).Score(e.Attempt)
	item, listed := q.Process.Get(e.Attempt)
	if !is || max(token, -token) != e.Token || e.Verb != "" && isNamed(e.Attempt) && q.run(e.Identity).Attempt != e.Attempt {
		return Gone
	}
	if e.Verb == "" {
		q.Crashes.Delete(Digest(item))
		q.over(worker, e)
		return OK
	}
	digest := strings.TrimPrefix(e.Identity, "d:")
	if isNamed(e.Attempt) {
		digest = digestIn(e.Identity)
	}
	verb, why, outcome := e.Verb, e.Text, OK
	if verb != "done" && verb != "drop" && q.canceled(token, digest) {
		verb, why, outcome = "drop", "canceled", Canceled
	}
	if isNamed(e.Attempt) {
		q.endNamed(n, worker, e, e.Identity, verb, why)
	} else if !listed {
		// Redis has lost it.
	} else if verb == "stop" {
		q.toFront(item)
		n.startable++
	} else if verb == "done" || verb == "drop" {
		q.Crashes.Delete(digest)
	} else {
		q.endNamed(n, worker, e, q.outside(item, q.nextPlace()), verb, why)
	}
	q.over(worker, e)
	return outcome
}

// over deletes what there is of an attempt.
func (q *Queue) over(worker string, e *End) {
	q.Process.Delete(e.Attempt)
	q.hold(worker, e.Attempt, 0)
}

func (q *Queue) endNamed(n *notice, worker string, e *End, name, verb, why string) {
	r := q.run(name)
	switch verb {
	case "done", "drop":
		q.gone(n, name)
	case "stop":
		q.comesBack(n, name, r, 0, e.Token-front)
	case "retry":
		r.Retries++
		r.Error = why
		fallthrough
	case "snooze":
		q.comesBack(n, name, r, q.Now+e.Delay, 0)
	case "fail":
		q.fail(n, worker, e, name, r, why)
	}
}

// fail moves a task to the failed queue; in a failed queue, to aside.
func (q *Queue) fail(n *notice, worker string, e *End, name string, r Run, why string) {
	if isRaw(name) {
		r.Crashes = q.crashes(digestIn(name))
		q.Crashes.Delete(digestIn(name))
	}
	kind, reason, _ := strings.Cut(why, ":")
	if q.Failed == nil {
		q.Aside.Put(name, q.nextPlace())
		r.Attempt, r.Error = "", reason
		q.setRun(name, r)
		return
	}
	f, record, back := q.Failed, q.record(name), ""
	place := f.nextPlace()
	failed := fmt.Sprintf("r:%s:%d", digestIn(name), place)
	if !isRaw(name) {
		back = name
		failed = fmt.Sprintf("%s#%d", name, place)
	}
	record.Metadata = fmt.Sprintf("%s:%d:%s:%s:%d:%d:%d:%d:%s%s%s",
		kind, q.Now, worker, e.Attempt, r.Retries, r.Crashes, len(back), len(reason), back, reason, record.Metadata)
	f.Tasks.Put(failed, record.String())
	f.Ready.Put(failed, place)
	if isRaw(failed) {
		f.Copies.Put(failed, 0)
	}
	q.gone(n, name)
}
