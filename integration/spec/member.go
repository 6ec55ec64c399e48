package spec

import (
	"fmt"
	"slices"
)

// The answers to a join: the worker is a member; somebody has left since it asked for the token; its tasks are still
// being returned.
const (
	Joined = 1
	Late   = 0
	Waits  = -1
)

// Join makes a worker a member. asked is the token before the request was made, round the next of its own numbers.
func (q *Queue) Join(worker string, lease, asked, round int64) int {
	if q.Leaving.Has(worker) {
		return Waits
	}
	if last, is := q.Rounds.Get(worker); is && number(last) >= round {
		return Joined // a copy
	}
	if asked < q.Number("fence") {
		return Late
	}
	q.renew(worker, lease)
	q.Rounds.Put(worker, text(round))
	q.set("lease", max(q.Number("lease"), lease))
	q.set("look", min(q.Number("look"), q.deadline(lease)))
	return Joined
}

func (q *Queue) deadline(lease int64) int64 {
	if lease == 0 {
		return never
	}
	return q.Now + lease
}

// renew renews a lease.
func (q *Queue) renew(worker string, lease int64) {
	q.Suspects.Remove(worker)
	q.Workers.Put(worker, q.deadline(lease))
}

// isFar reports whether a clock that was ahead has written a time.
func (q *Queue) isFar(at int64) bool {
	lease := q.Number("lease")
	return lease > 0 && at > q.Now+lease && at < never
}

// In a Pulse or a Started, these are in place of how many can start.
const (
	InPause  = -1
	InReturn = -2
)

// A Pulse is the answer to a heartbeat.
type Pulse struct {
	Deadline, Now    int64
	Held, More, Rank int
	Idle             int
	Stops            []string
	Asks             int // 1: call evict
}

// Heartbeat renews a lease.
func (q *Queue) Heartbeat(worker string, lease int64, judge bool) (Pulse, error) {
	deadline, is := q.Workers.Score(worker)
	if !is {
		return Pulse{}, ErrEvicted
	}
	q.renew(worker, lease)
	p := Pulse{Deadline: deadline, Now: q.Now, Held: len(q.working(worker)), Rank: q.Idle.index(worker)}
	p.More = len(q.Queues) + len(q.Ready) + len(q.Risky) + len(q.Schedule.UpTo(q.Now))
	if q.paused() {
		p.More = InPause
	} else if q.returning() {
		p.More = InReturn
	}
	if p.Held > 0 {
		p.Idle = len(q.Idle)
		for _, m := range q.working(worker).UpTo(-1) {
			p.Stops = append(p.Stops, m.Name)
		}
	}
	mayJudge := judge && deadline >= q.Now && !q.isFar(deadline)
	if look := q.Number("look"); (look <= q.Now || q.isFar(look)) && (mayJudge || q.returning()) {
		look = q.Workers.soonest()
		isFar := func(m Member) bool { return q.isFar(m.Score) }
		if q.returning() || len(q.Suspects) > 0 || look < q.Now || slices.ContainsFunc(q.Workers, isFar) {
			p.Asks++
			third := int64(1000)
			if lease > 0 {
				third = min(third, lease/3)
			}
			look = q.Now + third
		}
		q.set("look", look)
	}
	if lease > q.Number("lease") {
		q.set("lease", lease)
	}
	return p, nil
}

// Leave ends a membership, and returns how many tasks it has returned and whether to repeat it.
func (q *Queue) Leave(worker string, round int64) (returned int, more bool) {
	if last, is := q.Rounds.Get(worker); is && number(last) > round {
		return 0, false // a late copy
	}
	if !q.Leaving.Has(worker) {
		q.fence([]string{worker}, 0)
	}
	returned, _ = q.giveBack()
	if more = q.Leaving.Has(worker); more {
		q.set("look", q.Now)
	}
	return returned, more
}

// A Look is the answer to evict.
type Look struct {
	Evicted  []Member // who, and how many attempts each held
	Returned int
	Wait     int64
}

// Evict evicts a worker or, if that's "", those whose lease has expired.
func (q *Queue) Evict(target string, judge, grace int64) (l Look) {
	mayJudge := q.Now <= judge && judge < q.Now+2*grace
	lease := q.Number("lease")
	if lease == 0 {
		lease = 2 * grace
	}
	var dead []string
	if target != "" {
		if q.Workers.Has(target) {
			dead = []string{target}
		}
	} else {
		q.mendFar(grace)
		q.suspect(grace)
		dead = q.dead(mayJudge)
	}
	for _, worker := range dead {
		l.Evicted = append(l.Evicted, Member{worker, int64(len(q.working(worker)))})
	}
	if len(dead) > 0 {
		q.fence(dead, 1)
	}
	returned, more := q.giveBack()
	l.Returned = returned
	look := q.Now
	if !more {
		look = min(q.Suspects.soonest(), q.Workers[len(q.Workers.UpTo(q.Now-1)):].soonest(), q.Now+lease)
	}
	q.set("look", look)
	if !more && mayJudge {
		l.Wait = max(look-q.Now, 1)
	} else if !more {
		l.Wait = -1
	}
	return l
}

// mendFar mends what a clock that was ahead has written.
func (q *Queue) mendFar(grace int64) {
	lease := q.Number("lease")
	if lease == 0 {
		return
	}
	for _, m := range q.Workers {
		if q.isFar(m.Score) {
			q.Workers.Put(m.Name, q.Now+lease)
		}
	}
	for _, m := range q.Suspects {
		if m.Score > q.Now+max(lease, grace) {
			q.Suspects.Remove(m.Name)
		}
	}
}

// suspect suspects members whose lease has expired. A suspect that another program has added delays one of them.
func (q *Queue) suspect(grace int64) {
	expired := q.Workers.UpTo(q.Now - 1)
	for _, m := range expired[min(len(q.Suspects), len(expired)):] {
		if !q.Suspects.Has(m.Name) {
			q.Suspects.Put(m.Name, q.Now+grace)
		}
	}
}

// dead returns the suspects whose time is over, if the caller may judge them, and forgets those that live.
func (q *Queue) dead(mayJudge bool) (all []string) {
	for _, m := range q.Suspects.UpTo(q.Now) {
		if deadline, is := q.Workers.Score(m.Name); !is || deadline >= q.Now {
			q.Suspects.Remove(m.Name)
		} else if mayJudge {
			all = append(all, m.Name)
		}
	}
	return all
}

// fence ends memberships. Joins that were asked for before are refused.
func (q *Queue) fence(workers []string, evicted int64) {
	for _, w := range workers {
		q.Workers.Remove(w)
		q.Suspects.Remove(w)
		q.Idle.Remove(w)
		q.Rounds.Delete(w)
		q.Leaving.Put(w, evicted)
	}
	q.set("fence", q.add("token", 1))
	q.State.Delete("claimed")
}

// giveBack returns tasks of those that leave, the newest first. It returns how many, and whether more are left.
func (q *Queue) giveBack() (back int, more bool) {
	n := newNotice()
	type held struct {
		worker  string
		attempt Member
		evicted bool
	}
	var all []held
	for _, w := range q.Leaving {
		for _, m := range q.working(w.Name) {
			all = append(all, held{w.Name, m, w.Score == 1})
		}
	}
	slices.SortStableFunc(all, func(a, b held) int { return int(b.attempt.Score - a.attempt.Score) })
	for _, h := range all[:min(len(all), q.Limits.Return)] {
		if q.giveBackOne(n, h.attempt, h.evicted) {
			back++
		}
		q.hold(h.worker, h.attempt.Name, 0)
	}
	before := len(q.Leaving)
	for _, w := range q.Leaving {
		if len(q.working(w.Name)) == 0 {
			q.Leaving.Remove(w.Name)
		}
	}
	if more = len(q.Leaving) > 0; before > 0 && !more {
		q.tellAll()
	}
	if len(q.Workers) == 0 {
		q.State.Delete("lease")
	}
	return back, more
}

// giveBackOne returns one task, unless it was canceled, and reports whether it's back. Of what can't be returned, the
// list stays.
func (q *Queue) giveBackOne(n *notice, attempt Member, evicted bool) bool {
	item, is := q.Process.Get(attempt.Name)
	if !is {
		return false
	}
	if !isNamed(attempt.Name) {
		digest := Digest(item)
		if q.canceled(attempt.Score, digest) {
			q.Process.Delete(attempt.Name)
			q.Crashes.Delete(digest)
			return false
		}
		q.Process.Delete(attempt.Name)
		q.toFront(item)
		q.crashed(digest, evicted)
		return true
	}
	r := q.run(item)
	if r.Attempt != attempt.Name {
		return false
	}
	q.Process.Delete(attempt.Name)
	if q.canceled(attempt.Score, digestIn(item)) {
		q.gone(n, item)
		return false
	}
	if isRaw(item) {
		q.crashed(digestIn(item), evicted)
	} else if evicted {
		r.Crashes++
	}
	q.comesBack(n, item, r, 0, attempt.Score-front)
	return true
}

// crashed counts that a worker died holding a raw task.
func (q *Queue) crashed(digest string, evicted bool) {
	if evicted {
		q.Crashes.Put(digest, text(q.crashes(digest)+1))
	}
}

func (q *Queue) toFront(payload string) {
	q.Queues = append(slices.Clip(q.Queues), payload)
	q.add("taken", -1)
}

// Pause keeps tasks from starting; "" ends that.
func (q *Queue) Pause(who string) {
	if q.State.Delete("paused"); who != "" {
		q.State.Put("paused", fmt.Sprintf("%d:%s", q.Now, who))
		return
	}
	q.tellAll()
}

// tellAll wakes idle workers for all that waits, once nothing keeps it from starting.
func (q *Queue) tellAll() {
	n := newNotice()
	n.startable = len(q.Queues) + len(q.Ready) + len(q.Risky)
	if len(q.Schedule) > 0 {
		n.planned = q.Schedule[0].Score
	}
	q.tell(n)
}
