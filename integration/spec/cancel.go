package spec

import "strings"

// A Page is the answer to a cancel.
type Page struct {
	Removed int
	After   string // where the next call goes on
	Last    bool   // there is no next one
	Token   int64
	Workers []string // of the last: all who may run a copy
}

// Cancel removes what waits of a payload.
func (q *Queue) Cancel(payload, after string) (p Page) {
	digest := Digest(payload)
	p.Token = q.Number("token")
	q.Canceled.Put(digest, text(p.Token))
	q.Crashes.Delete(digest)
	first := "r:" + digest + ":"
	if after == "" {
		p.Removed = q.removeCopies(payload)
		if q.add("taken", int64(p.Removed)); p.Removed == q.Limits.Copies {
			return p // there may be more on the list
		}
		after = first
	}
	names := 0
	for _, m := range q.Copies { // all scores are equal, so they're in the order of their names
		if names == q.Limits.Copies || !strings.HasPrefix(m.Name, first) || m.Name <= after {
			continue
		}
		names, p.After = names+1, m.Name
		if q.waiting(m.Name) {
			q.withdraw(m.Name)
			p.Removed++
		}
	}
	if names == q.Limits.Copies {
		return p
	}
	p.After, p.Last = "", true
	if unique := "u:" + digest; q.waiting(unique) {
		q.withdraw(unique)
		p.Removed++
	}
	for _, set := range []Set{q.Workers, q.Leaving} {
		for _, m := range set {
			p.Workers = append(p.Workers, m.Name)
		}
	}
	return p
}

// removeCopies removes copies on the list, those at the front first.
func (q *Queue) removeCopies(payload string) (removed int) {
	var kept List
	for i := len(q.Queues) - 1; i >= 0; i-- {
		if q.Queues[i] == payload && removed < q.Limits.Copies {
			removed++
		} else {
			kept = append(List{q.Queues[i]}, kept...)
		}
	}
	q.Queues = kept
	return removed
}

// withdraw deletes a task that waits.
func (q *Queue) withdraw(name string) {
	for _, set := range []*Set{&q.Ready, &q.Schedule, &q.Risky, &q.Aside} {
		set.Remove(name)
	}
	q.Runs.Delete(name)
	q.Tasks.Delete(name)
	if isRaw(name) {
		q.Copies.Remove(name)
		q.Crashes.Delete(digestIn(name))
	}
}

// Mark marks attempts of a worker that a cancel covers. It answers up to which token it came, and what it found.
func (q *Queue) Mark(payload string, token int64, worker string, after int64) (upTo int64, found []string, err error) {
	digest := Digest(payload)
	if !q.Canceled.Has(digest) {
		return 0, nil, ErrLost
	}
	covered := func(sign int64) (all Set) {
		for _, m := range q.working(worker) {
			if t := sign * m.Score; t > after && t <= token {
				all.Put(m.Name, t)
			}
		}
		return all[:min(len(all), q.Limits.Mark)]
	}
	pages := []Set{covered(1), covered(-1)}
	for _, page := range pages {
		if len(page) == q.Limits.Mark {
			token = min(token, page[len(page)-1].Score)
		}
	}
	for _, page := range pages {
		for _, m := range page.UpTo(token) {
			if item, _ := q.Process.Get(m.Name); q.isCopy(m.Name, item, payload) {
				found = append(found, m.Name)
				q.hold(worker, m.Name, -m.Score)
			}
		}
	}
	return token, found, nil
}

func (q *Queue) isCopy(attempt, item, payload string) bool {
	if isNamed(attempt) {
		return digestIn(item) == Digest(payload)
	}
	return item == payload
}

// Remove deletes what waits under a name; a cancel also marks the attempt that runs, and returns it.
func (q *Queue) Remove(name, how string) (removed bool, marked string) {
	b, attempt := q.behind(name), q.run(name).Attempt
	if worker := workerOf(attempt); worker != "" && how == "canceled" {
		if token, is := q.working(worker).Score(attempt); is {
			q.hold(worker, attempt, -max(token, -token))
			marked = attempt
		}
	}
	if attempt != "" && b != nil {
		q.Next.Delete(name)
		removed = true
	} else if q.waiting(name) {
		q.withdraw(name)
		removed = true
	}
	return removed, marked
}

// workerOf returns the worker of the attempt of a named task.
func workerOf(attempt string) string {
	parts := strings.Split(attempt, ".")
	if len(parts) < 4 || !isNamed(attempt) {
		return ""
	}
	return strings.Join(parts[:len(parts)-3], ".")
}
