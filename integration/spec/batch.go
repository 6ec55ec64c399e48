package spec

import (
	"time"

	"github.com/worqr/worqr/internal/store"
)

func init() {
	verbs["stage"] = stage
	verbs["commit"] = commit
	verbs["haul"] = haul
}

// unmoved returns the batches still to be moved to the queue, in order.
func (s *Store) unmoved(batches string) (ids []string) {
	if !s.is(batches, "zset") {
		return nil
	}
	for _, r := range s.between(batches, -inf, aside-1) {
		ids = append(ids, r.name)
	}
	return ids
}

// behind refuses an enqueue that would overtake a batch.
func (s *Store) behind(batches string) {
	if len(s.unmoved(batches)) > 0 {
		panic(Refusal("UNMOVED an earlier batch must be moved first"))
	}
}

// tasks returns the tasks in a list; none if the key isn't a list.
func (s *Store) tasks(key string) []string {
	if !s.is(key, "list") {
		return nil
	}
	return s.items(key)
}

func stage(s *Store, c store.Call, _ time.Time) any {
	before, count, length := int(number(c.Arg("before"))), len(c.Rest()), s.length(c.Key("batch"))
	v := s.at(c.Key("batch"), "list")
	open := v == nil || !v.expires.IsZero()
	switch {
	case open && length == before+count:
		return length
	case !open || length != before:
		return Refusal("BATCH pages of the batch are missing")
	}
	s.push(c.Key("batch"), c.Rest()...)
	s.expire(c.Key("batch"), number(c.Arg("ttl")))
	return before + count
}

func commit(s *Store, c store.Call, _ time.Time) any {
	if s.exists(c.Key("once")) {
		mark, _ := s.get(c.Key("once"))
		return bit(mark == c.Arg("id"))
	}
	last := int64(0)
	for _, r := range s.between(c.Key("batches"), 0, aside-1) {
		last = int64(r.score)
	}
	if s.length(c.Key("batch")) != int(number(c.Arg("count"))) {
		return Refusal("BATCH pages of the batch are missing")
	}
	s.put(c.Key("once"), c.Arg("id"))
	s.expire(c.Key("once"), number(c.Arg("window")))
	s.persist(c.Key("batch"))
	s.add(c.Key("batches"), c.Arg("id"), min(last+1, aside-1))
	s.Publish(c.Arg("enqueue"), c.Arg("count"))
	return 1
}

func haul(s *Store, c store.Call, _ time.Time) any {
	s.remove(c.Key("batches"), "")
	damaged := []any{}
	for _, id := range s.unmoved(c.Key("batches")) {
		key := c.Arg("batch") + id
		switch {
		case len(damaged) == 100:
		case len(s.tasks(key)) == 0:
			s.add(c.Key("batches"), id, aside)
			damaged = append(damaged, shortened(id))
			continue
		case len(damaged) == 0:
			s.move(key, c.Key("waiting"), c.Key("batches"), id, c.Key("idle"), c.Arg("wake"))
		}
		break
	}
	return []any{len(s.unmoved(c.Key("batches"))), damaged}
}

// move moves a page of a batch to the back of the queue.
func (s *Store) move(batch, waiting, batches, id, idle, wake string) {
	moved, bytes := 0, 0
	for moved < 2000 && bytes < 1<<20 && s.length(batch) > 0 {
		s.length(waiting) // of another type: takes nothing
		payload, _ := s.popFront(batch)
		s.push(waiting, payload)
		moved, bytes = moved+1, bytes+len(payload)
	}
	if !s.exists(batch) {
		s.remove(batches, id)
	}
	s.wakes(idle, wake, moved)
}

// dropBatches drops the first hundred, and returns how many are left.
func (q *queue) dropBatches(prefix string) int {
	if !q.is(q.batches, "zset") {
		q.del(q.batches)
	}
	all := q.all(q.batches)
	for _, r := range all[:min(len(all), 100)] {
		q.del(prefix + r.name)
		q.remove(q.batches, r.name)
	}
	return q.size(q.batches)
}

// shortened returns the beginning of an id, as it is reported.
func shortened(id string) string { return id[:min(len(id), 64)] }

// firstBatch returns the next batch to be moved, and its remaining tasks.
func (q *queue) firstBatch(prefix string) string {
	ids := q.unmoved(q.batches)
	if len(ids) == 0 {
		return ""
	}
	return shortened(ids[0]) + " " + text(len(q.tasks(prefix+ids[0])))
}
