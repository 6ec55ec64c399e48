package spec

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// The number of notes, and the member that precedes them.
const (
	ageNotes = 256
	ageDrift = 1 << 52
	drift    = "drift"
)

// keepDrift stores what this call has added to the drift, if there are notes.
func (q *queue) keepDrift() {
	if !q.is(q.ages, "zset") {
		return
	}
	if was, there := q.score(q.ages, drift); there && q.drift != 0 {
		q.add(q.ages, drift, int64(was)+q.drift)
	}
}

// haveLeft returns how many tasks have left the list at its front, if that is known.
func (q *queue) haveLeft() (int64, bool) {
	if !q.is(q.ages, "zset") {
		return 0, false
	}
	known, there := q.score(q.ages, drift)
	token, numeric := q.lastToken()
	left := token - int64(known) - ageDrift
	return left, there && numeric && known < 0 && left >= 0
}

// noteAges notes how many tasks have been added to the list.
func (q *queue) noteAges(length int) {
	left, known := q.haveLeft()
	if length == 0 || !known {
		q.del(q.ages)
		var numeric bool
		if left, numeric = q.lastToken(); length == 0 || !numeric {
			return
		}
		q.add(q.ages, drift, -ageDrift)
	}
	came := left + int64(length)
	q.forgetAges(0, float64(left))
	all := q.all(q.ages)
	last := all[len(all)-1]
	at, noted := timeOf(last.name)
	switch {
	case noted && last.score > float64(came):
		q.add(q.ages, q.forgetAges(float64(came+1), inf), came)
	case !noted || last.score < float64(came) && math.Floor(at/1000) != float64(q.now/1000):
		q.add(q.ages, text(q.now), came)
		switch n := q.size(q.ages); {
		case n > 2*ageNotes:
			q.del(q.ages)
		case n > ageNotes+1:
			q.thinAges()
		}
	}
}

// forgetAges removes the notes of a range, and returns the first of them.
func (q *queue) forgetAges(low, high float64) (first string) {
	notes := q.between(q.ages, low, high)
	for _, n := range notes[:min(len(notes), 1000)] {
		q.remove(q.ages, n.name)
	}
	if len(notes) > 0 {
		first = notes[0].name
	}
	return first
}

// thinAges drops notes that are soon followed by another. The interval grows until few are left.
func (q *queue) thinAges() {
	notes := q.all(q.ages)[1:]
	for gap := 2000.0; ; gap *= 2 {
		kept, dropped := float64(q.now), []string{}
		for _, n := range slices.Backward(notes[:len(notes)-1]) {
			if at, _ := timeOf(n.name); kept-at < gap {
				dropped = append(dropped, n.name)
			} else {
				kept = at
			}
		}
		if len(notes)-len(dropped) <= ageNotes*3/4 {
			q.remove(q.ages, dropped...)
			return
		}
	}
}

// timeOf returns the time of a note; 0 if it isn't one.
func timeOf(name string) (float64, bool) {
	if name == "" || strings.Trim(name, "0123456789") != "" {
		return 0, false
	}
	f, _ := strconv.ParseFloat(name, 64) // infinite if there are many digits
	return f, true
}

// endAges removes everything noted about an empty list.
func (q *queue) endAges() {
	q.keepDrift()
	if !q.exists(q.waiting) {
		q.del(q.ages)
	}
}
