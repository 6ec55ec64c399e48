package spec

import "time"

func init() {
	verbs["stage"] = stage
	verbs["commit"] = commit
	verbs["haul"] = haul
}

// unmoved are the batches that are to be moved to the queue, in their order.
func (s *Store) unmoved(batches string) (ids []string) {
	if !s.is(batches, "zset") {
		return nil
	}
	for _, r := range s.between(batches, -inf, aside-1) {
		ids = append(ids, r.name)
	}
	return ids
}

// behind refuses to enqueue in front of a batch.
func (s *Store) behind(batches string) {
	if len(s.unmoved(batches)) > 0 {
		panic(Refusal("UNMOVED a batch that was committed before is to be moved first"))
	}
}

// tasks are those in a list, if it is one.
func (s *Store) tasks(key string) []string {
	if !s.is(key, "list") {
		return nil
	}
	return s.items(key)
}

func stage(s *Store, keys, args []string, _ time.Time) any {
	before, count, length := int(number(args[0])), len(args)-2, s.length(keys[0])
	v := s.at(keys[0], "list")
	open := v == nil || !v.expires.IsZero()
	switch {
	case open && length == before+count:
		return length
	case !open || length != before:
		return Refusal("BATCH pages of the batch are missing")
	}
	s.push(keys[0], args[2:]...)
	s.expire(keys[0], number(args[1]))
	return before + count
}

func commit(s *Store, keys, args []string, _ time.Time) any {
	if s.exists(keys[2]) {
		mark, _ := s.get(keys[2])
		return bit(mark == args[1])
	}
	last := int64(0)
	for _, r := range s.between(keys[1], 0, aside-1) {
		last = int64(r.score)
	}
	if s.length(keys[0]) != int(number(args[2])) {
		return Refusal("BATCH pages of the batch are missing")
	}
	s.put(keys[2], args[1])
	s.expire(keys[2], number(args[3]))
	s.persist(keys[0])
	s.add(keys[1], args[1], min(last+1, aside-1))
	s.publish(args[0], args[2])
	return 1
}

func haul(s *Store, keys, args []string, _ time.Time) any {
	s.remove(keys[2], "")
	damaged := []any{}
	for _, id := range s.unmoved(keys[2]) {
		key := args[1] + id
		switch {
		case len(damaged) == 100:
		case len(s.tasks(key)) == 0:
			s.add(keys[2], id, aside)
			damaged = append(damaged, head(id))
			continue
		case len(damaged) == 0:
			s.move(key, keys[0], keys[2], id, keys[1], args[0])
		}
		break
	}
	return []any{len(s.unmoved(keys[2])), damaged}
}

// move moves a page of a batch to the back of the queue.
func (s *Store) move(batch, waiting, batches, id, idle, wake string) {
	moved, bytes := 0, 0
	for moved < 2000 && bytes < 1<<20 && s.length(batch) > 0 {
		s.length(waiting) // of another type: nothing is taken
		payload, _ := s.popFront(batch)
		s.push(waiting, payload)
		moved, bytes = moved+1, bytes+len(payload)
	}
	if !s.exists(batch) {
		s.remove(batches, id)
	}
	s.wakes(idle, wake, moved)
}

// dropBatches drops the first hundred, and tells how many are left.
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

// head is the begin of an id, as far as it is told.
func head(id string) string { return id[:min(len(id), 64)] }

// firstBatch is the batch to be moved next, with what is left of it.
func (q *queue) firstBatch(prefix string) string {
	ids := q.unmoved(q.batches)
	if len(ids) == 0 {
		return ""
	}
	return head(ids[0]) + " " + text(len(q.tasks(prefix+ids[0])))
}

// inBatches are the tasks in the first hundred that are to be moved, in their order.
func (q *queue) inBatches(prefix string) (all []string) {
	ids := q.unmoved(q.batches)
	for _, id := range ids[:min(len(ids), 100)] {
		all = append(all, q.tasks(prefix+id)...)
	}
	return all
}

// batch finds one whose tasks are gone.
func (x *examination) batch(id string) {
	if !x.is(x.batches, "zset") {
		return
	}
	place, known := x.score(x.batches, id)
	key := x.prefix + id
	tasks := len(x.tasks(key))
	if !known || place < aside && tasks > 0 {
		return
	}
	whole := x.is(key, "list")
	if x.mend && tasks > 0 {
		x.add(x.batches, id, 0)
	} else if x.mend && whole {
		x.remove(x.batches, id)
	}
	x.tell("batch", id, x.mend && whole, "")
}
