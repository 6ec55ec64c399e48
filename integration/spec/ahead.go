package spec

// longest returns the longest lease of the members; 0 if it isn't known.
func (q *queue) longest() int64 {
	if !q.is(q.rounds, "hash") {
		return 0
	}
	return q.count(q.rounds, "lease")
}

// isAhead reports whether a deadline is later than that of any live worker.
func (q *queue) isAhead(deadline float64) bool {
	longest := q.longest()
	return longest > 0 && deadline > float64(q.now+longest) && deadline < never
}

// tooLong returns the members whose deadline is ahead.
func (q *queue) tooLong() (all []ranked) {
	for _, r := range q.all(q.workers) {
		if q.isAhead(r.score) {
			all = append(all, r)
		}
	}
	return all
}

// suspectAhead marks a page of the workers whose deadline is ahead, and marks those again whose mark is ahead, too.
// It returns how many deadlines are ahead.
func (q *queue) suspectAhead(grace int64) int {
	wait := q.longest() * 3 / 2
	if wait == 0 || !q.suspecting() && len(q.between(q.workers, float64(q.now+2*grace+3), never-1)) == 0 {
		return 0
	}
	late := q.between(q.suspects, float64(q.now+max(grace, wait)+1), inf)
	for _, r := range late[:min(len(late), atOnceSuspects)] {
		q.remove(q.suspects, r.name)
	}
	ahead := q.tooLong()
	ahead = ahead[:min(len(ahead), atOnceSuspects)]
	for _, r := range ahead {
		if _, ok := q.score(q.suspects, r.name); !ok {
			q.add(q.suspects, r.name, q.now+wait)
		}
	}
	return len(ahead)
}
