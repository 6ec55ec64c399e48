package spec

import "strings"

// judgeRunningAdded checks that the two fields of a running added task name each other, and that its
// process exists.
func (x *examination) judgeRunningAdded(id, stored string) {
	name, _, _, isValue := readAdded(stored)
	process := id
	if !isValue {
		before, _, ok := strings.Cut(stored, ":")
		if process = before; !ok {
			x.flaw("schedule", id, func() { x.unset(x.entries, id) })
			return
		}
	}
	_, list := x.payload(process)
	if list == foreign {
		return
	}
	if !isValue {
		if of, _, _, ok := readAdded(x.word(x.entries, process)); !ok || of != id {
			x.flaw("schedule", id, func() { x.unset(x.entries, id) })
		}
		return
	}
	runs, _, ok := strings.Cut(x.word(x.entries, name), ":")
	holder := x.holder(id)
	there := list == there || holder != ""
	if ok && runs == id && there {
		return
	}
	x.flaw("schedule", id, func() {
		if there {
			x.set(x.entries, name, id+":"+holder)
		} else {
			x.unset(x.entries, id)
		}
	})
}

// judgeRunning checks a field of entries: the process exists, and the entry names it. If a worker holds
// the process without a list, the field stays until the worker ends it.
func (x *examination) judgeRunning(id string) {
	entry, ok := x.field(x.entries, id)
	if !ok {
		return
	}
	if _, _, _, added := readAdded(entry); added || strings.HasPrefix(id, "a:") {
		x.judgeRunningAdded(id, entry)
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
			x.endEntry(entry, id)
		case list == there && names == missing: // Redis has lost the entry
			x.set(x.entry+entry, "process", id, "tried", 0, "died", 0)
			x.remove(x.schedule, entry)
		default:
			x.unset(x.entries, id)
		}
	})
}

// An agreement holds whether schedule, contents and entries agree with an entry.
type agreement struct {
	*examination
	of, key     string // the entry
	waits, runs bool
	wrong, left bool // left: the holder will repair it
}

// judgeEntry checks that schedule, contents and entries agree with an entry.
func (x *examination) judgeEntry(entry string) {
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
		content := x.digestIn(payload, entry) + ":" + entry
		if _, ok := x.score(x.contents, content); !ok {
			a.amiss(func() { x.add(x.contents, content, 0) })
		}
	}
	if a.wrong {
		x.tell("schedule", entry, x.mend && !a.left, "")
	}
}

// amiss records that something is wrong. With mend, it repairs it.
func (a *agreement) amiss(cure func()) {
	a.wrong = true
	if a.mend {
		cure()
	}
}

// timed returns the due time of the waiting task. If there is none, it sets one.
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

// running checks that the process that an entry names refers to the entry.
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
			a.endEntry(a.of, process)
			a.runs = false
		})
	default:
		a.wrong, a.left = true, true
	}
}

// inSchedule checks that an entry is in schedule if and only if it waits and nothing blocks it.
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

// judgeScheduled checks that a member of schedule has an entry.
func (x *examination) judgeScheduled(entry string) {
	_, waits := x.part(entry, "payload")
	_, runs := x.part(entry, "process")
	_, plans := x.score(x.schedule, entry)
	switch {
	case !plans:
	case waits == missing && runs == missing:
		x.flaw("schedule", entry, func() { x.remove(x.schedule, entry) })
	default:
		if tries, _ := x.part(entry, "retries"); number(tries) > 0 {
			x.retries++
		}
	}
}

// judgeAdded checks that an item of the stream is an added task, and that its payload exists.
func (x *examination) judgeAdded(id string) {
	if !x.is(x.added, "stream") {
		return
	}
	for _, it := range x.stream(x.added).items {
		if it.id.String() != id {
			continue
		}
		entry, _, card, ok := it.added()
		lost := false
		if ok && cardHas(card, apart) {
			_, seen := x.part(entry, "payload")
			lost = seen == missing
		}
		switch {
		case lost:
			x.flaw("added", id, func() { x.dropAdded(id) })
		case !ok:
			x.tell("added", id, false, "")
		}
	}
}

// judgeContent checks that a member of contents, digest:entry, stands for a waiting task.
func (x *examination) judgeContent(member string) {
	of, entry := member[:min(40, len(member))], member[min(41, len(member)):]
	payload, seen := x.part(entry, "payload")
	if _, ok := x.score(x.contents, member); ok && (seen == missing || seen == there && x.digestIn(payload, entry) != of) {
		x.flaw("schedule", entry, func() { x.remove(x.contents, member) })
	}
}
