package spec

import "strings"

// run judges a process of entries: it exists, and the entry names it. A held one whose list is missing ends
// with its holder.
func (x *examination) run(id string) {
	entry, ok := x.field(x.entries, id)
	if !ok {
		return
	}
	if _, _, _, added := readAdded(entry); added || strings.HasPrefix(id, "a:") {
		x.judgeAdded(id, entry)
		return
	}
	_, list := x.payload(id)
	named, names := x.part(entry, "process")
	if list == foreign || names == foreign {
		return
	}
	holder := x.holder(id)
	its := names == there && named == id
	if its && (list == there || holder != "") {
		return
	}
	x.flaw("schedule", id, func() {
		switch {
		case its:
			x.endRun(entry, id)
		case list == there && names == missing: // Redis has lost the entry
			x.set(x.entry+entry, "process", id, "tried", 0, "died", 0)
			x.remove(x.schedule, entry)
		default:
			x.unset(x.entries, id)
		}
	})
}

// endRun ends what an entry runs. If what it blocked has lost its time, it gets one.
func (x *examination) endRun(entry, id string) {
	key := x.entry + entry
	_, timed := integer(x.word(key, "due"))
	if _, waits := x.field(key, "payload"); waits && !timed {
		x.set(key, "due", x.now)
	}
	x.ended(entry, id, "lost")
}

// An agreement is whether the other keys agree with an entry.
type agreement struct {
	*examination
	of, key     string // the entry
	waits, runs bool
	wrong, left bool // left to its holder
}

// agrees judges an entry: the other keys agree with it. What can't be repaired here is left to its holder.
func (x *examination) agrees(entry string) {
	payload, seen := x.part(entry, "payload")
	if seen == foreign || !x.exists(x.entry+entry) {
		return
	}
	a := &agreement{examination: x, of: entry, key: x.entry + entry, waits: seen == there}
	process, runs := x.field(a.key, "process")
	a.runs = runs
	if _, timed := x.field(a.key, "due"); a.waits && !timed && !runs {
		if _, added := x.waitsAdded(entry); added {
			return // its item is in the stream
		}
	}
	if !a.waits && !a.runs {
		a.amiss(func() {
			x.del(a.key)
			x.remove(x.schedule, entry)
		})
	}
	due := a.timed()
	a.running(process)
	a.inSchedule(due)
	if a.waits {
		content := x.sum(payload, entry) + ":" + entry
		if _, ok := x.score(x.contents, content); !ok {
			a.amiss(func() { x.add(x.contents, content, 0) })
		}
	}
	if a.wrong {
		x.tell("schedule", entry, x.mend && !a.left, "")
	}
}

// amiss notes that something is wrong, and repairs it.
func (a *agreement) amiss(cure func()) {
	a.wrong = true
	if a.mend {
		cure()
	}
}

// timed makes sure that what waits has a time, and returns it.
func (a *agreement) timed() int64 {
	due, ok := integer(a.word(a.key, "due"))
	if a.waits && !ok {
		due = a.now
		if planned, plans := a.score(a.schedule, a.of); plans {
			due = int64(planned)
		}
		a.amiss(func() { a.set(a.key, "due", due) })
	}
	return due
}

// running makes the process that an entry names refer to the entry.
func (a *agreement) running(process string) {
	if named, ok := a.field(a.entries, process); !a.runs || ok && named == a.of {
		return
	}
	_, list := a.payload(process)
	holder := a.holder(process)
	switch {
	case list == there:
		a.amiss(func() { a.set(a.entries, process, a.of) })
	case list == missing && holder == "":
		a.amiss(func() {
			a.endRun(a.of, process)
			a.runs = false
		})
	default:
		a.wrong, a.left = true, true
	}
}

// inSchedule makes sure that an entry is in schedule if and only if it waits and nothing blocks it.
func (a *agreement) inSchedule(due int64) {
	planned, plans := a.score(a.schedule, a.of)
	switch {
	case a.runs && plans:
		a.amiss(func() { a.remove(a.schedule, a.of) })
	case a.waits && !a.runs && !plans:
		a.amiss(func() { a.plan(&a.lane, a.of, due) })
	case a.waits && !a.runs && planned != float64(due):
		a.amiss(func() { a.set(a.key, "due", int64(planned)) })
	}
}

// planned judges a member of schedule: something waits there.
func (x *examination) planned(entry string) {
	_, waits := x.part(entry, "payload")
	_, runs := x.part(entry, "process")
	_, plans := x.score(x.schedule, entry)
	switch {
	case !plans:
	case waits == missing && runs == missing:
		x.flaw("schedule", entry, func() { x.remove(x.schedule, entry) })
	default:
		if tries, _ := x.part(entry, "retries"); number(tries) > 0 {
			x.tries++
		}
	}
}

// content judges a member of contents, digest:entry: that payload waits there.
func (x *examination) content(member string) {
	of, entry := member[:min(40, len(member))], member[min(41, len(member)):]
	payload, seen := x.part(entry, "payload")
	if _, ok := x.score(x.contents, member); ok && (seen == missing || seen == there && x.sum(payload, entry) != of) {
		x.flaw("schedule", entry, func() { x.remove(x.contents, member) })
	}
}
