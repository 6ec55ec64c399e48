package spec

// run judges a process of entries: it is there, and the entry names it. What is held
// without its list ends with its holder.
func (x *examination) run(id string) {
	entry, ok := x.field(x.entries, id)
	if !ok {
		return
	}
	_, list := x.payload(id)
	named, names := x.part(entry, "process")
	if list == foreign || names == foreign {
		return
	}
	holder, _ := x.holder(id)
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

// endRun ends what an entry runs. What was blocked is not lost for want of a time.
func (x *examination) endRun(entry, id string) {
	key := x.entry + entry
	due, _ := x.field(key, "due")
	_, timed := integer(due)
	if _, waits := x.field(key, "payload"); waits && !timed {
		x.set(key, "due", x.now)
	}
	x.ended(entry, id)
}

// agrees judges an entry: the other keys say what it says. What cannot be mended here
// is left to who holds it.
func (x *examination) agrees(entry string) {
	key := x.entry + entry
	payload, seen := x.part(entry, "payload")
	if seen == foreign || !x.exists(key) {
		return
	}
	waits := seen == there
	process, runs := x.field(key, "process")
	wrong, left := false, false
	amiss := func(cure func()) {
		wrong = true
		if x.mend {
			cure()
		}
	}
	if !waits && !runs {
		amiss(func() {
			x.del(key)
			x.remove(x.schedule, entry)
		})
	}
	planned, plans := x.score(x.schedule, entry)
	stored, _ := x.field(key, "due")
	due, timed := integer(stored)
	if waits && !timed {
		if due = x.now; plans {
			due = int64(planned)
		}
		amiss(func() { x.set(key, "due", due) })
	}
	if named, ok := x.field(x.entries, process); runs && (!ok || named != entry) {
		_, list := x.payload(process)
		holder, _ := x.holder(process)
		switch {
		case list == there:
			amiss(func() { x.set(x.entries, process, entry) })
		case list == missing && holder == "":
			amiss(func() {
				x.endRun(entry, process)
				runs = false
			})
		default:
			wrong, left = true, true
		}
	}
	planned, plans = x.score(x.schedule, entry)
	switch {
	case runs && plans:
		amiss(func() { x.remove(x.schedule, entry) })
	case waits && !runs && !plans:
		amiss(func() { x.plan(&x.lane, entry, due) })
	case waits && !runs && planned != float64(due):
		amiss(func() { x.set(key, "due", int64(planned)) })
	}
	if waits {
		content := x.sum(payload, entry) + ":" + entry
		if _, ok := x.score(x.contents, content); !ok {
			amiss(func() { x.add(x.contents, content, 0) })
		}
	}
	if wrong {
		x.tell("schedule", entry, x.mend && !left, "")
	}
}

// planned judges one in schedule: something is there.
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

// content judges one of contents, digest:entry: that waits there.
func (x *examination) content(member string) {
	of, entry := member[:min(40, len(member))], member[min(41, len(member)):]
	payload, seen := x.part(entry, "payload")
	if _, ok := x.score(x.contents, member); ok && (seen == missing || seen == there && x.sum(payload, entry) != of) {
		x.flaw("schedule", entry, func() { x.remove(x.contents, member) })
	}
}
