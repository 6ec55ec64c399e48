package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/worqr/worqr"
)

// A model is what a queue should be, both lanes and the failed queue: the verbs
// on a handful of slices and maps. Where a verb asks for the time, it is told
// it. Payloads and keys are words.
type model struct {
	list    []item               // front first
	entries map[string]entry     // the schedule: k:key, and r:process for what is tried again
	held    map[string][]running // members → what they hold, in the order of the starts
	failed  map[string]grave     // by id
	ledger  map[string]int       // payload → crashes of what has no key
	locks   map[string]int       // payload → the copy that was enqueued as unique
	once    map[string]bool      // nonces
	next    int                  // number of the last copy
	paused  bool
	token   int64    // of the last start
	wrong   []string // what was seen and should not be
}

// item is a task that has no key.
type item struct {
	payload string
	copy    int
}

// entry is what waits and what runs under one name.
type entry struct {
	waits, apart     bool // apart: as risky, so that it names its digest
	item                  // what waits
	due              int64
	retries, crashes int
	process          string // what runs; "" is nothing
	blocked          []change
}

// change is a Put.
type change struct {
	payload      string
	at           int64
	when         worqr.Reschedule
	keep, counts bool
}

// running is a task that a worker holds.
type running struct {
	item
	task         *worqr.Task
	entry        string // "" is the list
	tried, died  int
	canceledName []string // in the cancel log
}

// grave is a failed task.
type grave struct {
	payload, kind, reason, worker, from string
	tries, deaths                       int
	at                                  int64
}

func newModel() *model {
	return &model{
		entries: map[string]entry{}, held: map[string][]running{}, failed: map[string]grave{},
		ledger: map[string]int{}, locks: map[string]int{}, once: map[string]bool{},
	}
}

func (m *model) clone() *model {
	c := *m
	c.list, c.wrong = slices.Clone(m.list), slices.Clone(m.wrong)
	c.entries, c.held, c.failed = maps.Clone(m.entries), maps.Clone(m.held), maps.Clone(m.failed)
	c.ledger, c.locks, c.once = maps.Clone(m.ledger), maps.Clone(m.locks), maps.Clone(m.once)
	for w, runs := range c.held {
		c.held[w] = slices.Clone(runs)
	}
	return &c
}

func isKey(entry string) bool { return strings.HasPrefix(entry, "k:") }

// should notes what is wrong unless it holds.
func (m *model) should(holds bool, what ...string) {
	if !holds {
		m.wrong = append(m.wrong, strings.Join(what, " "))
	}
}

// push adds to the back of the list.
func (m *model) push(payload string) (copy int) {
	m.next++
	m.list = append(m.list, item{payload, m.next})
	return m.next
}

func (m *model) unlock(i item) {
	if m.locks[i.payload] == i.copy {
		delete(m.locks, i.payload)
	}
}

// apply changes what waits.
func (e *entry) apply(c change) {
	if c.when == worqr.RescheduleAlways || c.when == worqr.RescheduleIfLater && c.at > e.due || c.when == worqr.RescheduleIfEarlier && c.at < e.due {
		e.due = c.at
	}
	if c.keep {
		return
	}
	e.payload = c.payload
	if !c.counts {
		e.retries, e.crashes = 0, 0
	}
}

func (m *model) put(name string, c change, now int64) {
	if c.at == 0 {
		c.at = now
	}
	e := m.entries[name]
	if e.waits {
		e.apply(c)
	} else {
		e = entry{waits: true, item: item{payload: c.payload}, due: c.at, process: e.process}
	}
	if e.process != "" {
		e.blocked = append(slices.Clip(e.blocked), c)
	}
	m.entries[name] = e
}

// remove drops what waits under a name.
func (m *model) remove(name string) bool {
	e := m.entries[name]
	if e.waits {
		m.unlock(e.item)
	}
	if e.process != "" {
		m.entries[name] = entry{process: e.process}
	} else {
		delete(m.entries, name)
	}
	return e.waits
}

// scheduled is what waits in the schedule and is not blocked, in its order.
func (m *model) scheduled() (names []string) {
	for name, e := range m.entries {
		if e.waits && e.process == "" {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(m.entries[a].due, m.entries[b].due), cmp.Compare(a, b))
	})
	return names
}

// crashes of what waits.
func (m *model) crashes(name string) int {
	e := m.entries[name]
	if isKey(name) {
		return e.crashes
	}
	return m.ledger[e.payload]
}

// deadly is how many workers may die holding a task.
const deadly = 3

// start has a worker take up to n tasks, which it says these are. What it found
// too deadly is in the failed queue now, and what was risky in the schedule,
// by these names. It goes on until it has one or there is none.
func (m *model) start(worker string, n int, tasks []*worqr.Task, graves, moved []string, now int64, at func(key, field string) int64) {
	started := 0
	for began := -1; !m.paused && started == 0 && began != len(graves)+len(moved); {
		began = len(graves) + len(moved)
		passed := map[string]bool{}
		for got, ids := 0, n; got < ids; {
			r, found := m.pop(passed, now)
			for found && r.entry != "" && m.risky(worker, r) {
				passed[r.entry] = true
				r, found = m.pop(passed, now)
			}
			if !found {
				break
			}
			if r.died >= deadly || m.risky(worker, r) {
				ids = n - 1 // what is buried or moved shares the last id
			}
			switch {
			case r.died >= deadly && len(graves) > 0:
				m.take(r)
				m.bury(r, graves[0], worker, "crashed", decimal(r.died)+" workers died holding it", at("failed:keyed:k:"+graves[0], "at"))
				graves = graves[1:]
			case m.risky(worker, r) && len(moved) > 0:
				m.take(r)
				m.entries[moved[0]] = entry{waits: true, apart: true, item: r.item, due: at("keyed:"+moved[0], "due")}
				passed[moved[0]] = true
				moved = moved[1:]
			case r.died < deadly && !m.risky(worker, r) && len(tasks) > 0:
				m.take(r)
				r.task, tasks = tasks[0], tasks[1:]
				m.check(r)
				if r.entry != "" {
					m.entries[r.entry] = entry{process: r.task.AttemptID}
				}
				m.held[worker] = append(m.held[worker], r)
				started++
				got++
			default:
				m.should(false, "not dealt with:", r.payload, r.entry, decimal(r.died))
				return
			}
		}
	}
	m.should(len(tasks) == 0 && len(graves) == 0 && len(moved) == 0, "too much was dealt with")
}

// pop finds what is next.
func (m *model) pop(passed map[string]bool, now int64) (r running, found bool) {
	for _, name := range m.scheduled() {
		if e := m.entries[name]; !passed[name] && e.due <= now {
			return running{item: e.item, entry: name, tried: e.retries, died: m.crashes(name)}, true
		}
	}
	if len(m.list) > 0 {
		return running{item: m.list[0], died: m.ledger[m.list[0].payload]}, true
	}
	return running{}, false
}

// take takes what is next away; the copy keeps its lock.
func (m *model) take(r running) {
	if r.entry == "" {
		m.list = slices.Delete(m.list, 0, 1)
	} else {
		delete(m.entries, r.entry)
	}
}

// risky is what the next death would bury, if the worker runs such a task.
func (m *model) risky(worker string, r running) bool {
	return r.died == deadly-1 && slices.ContainsFunc(m.held[worker], func(r running) bool { return r.died == deadly-1 })
}

// check holds a task against what was to be started.
func (m *model) check(r running) {
	t, key := r.task, ""
	if isKey(r.entry) {
		key = r.entry[2:]
	}
	m.should(string(t.Payload) == r.payload && t.Key == key && t.Retries == r.tried && t.Crashes == r.died && t.Failure == nil,
		"started:", string(t.Payload), t.Key, decimal(t.Retries), decimal(t.Crashes),
		"want:", r.payload, key, decimal(r.tried), decimal(r.died))
	m.should(t.Token > m.token, "a token that does not rise")
	m.token = t.Token
}

// let takes a task out of the hands of its worker.
func (m *model) let(worker string, process string) running {
	i := slices.IndexFunc(m.held[worker], func(r running) bool { return r.task.AttemptID == process })
	r := m.held[worker][i]
	m.held[worker] = slices.Delete(m.held[worker], i, i+1)
	return r
}

// end is the end of a run for good; what was put meanwhile waits now.
func (m *model) end(r running) {
	m.unlock(r.item)
	if r.entry == "" {
		return
	}
	e := m.entries[r.entry]
	e.process, e.blocked = "", nil
	m.entries[r.entry] = e
	if !e.waits {
		delete(m.entries, r.entry)
	}
}

// back has a run wait again in the schedule; what was put meanwhile is put
// now.
func (m *model) back(r running, name string, due int64, retries, crashes int) {
	e := entry{waits: true, item: r.item, due: due, retries: retries, crashes: crashes}
	for _, c := range m.entries[name].blocked {
		e.apply(c)
	}
	m.entries[name] = e
}

func (m *model) finish(worker, process string) {
	r := m.let(worker, process)
	if !isKey(r.entry) {
		delete(m.ledger, r.payload)
	}
	m.end(r)
}

// giveBack has runs wait again before all others; as many died.
func (m *model) giveBack(runs []running, died int) (returned int) {
	var front []item
	for _, r := range runs {
		switch {
		case len(r.canceledName) > 0:
			m.end(r)
			continue
		case r.entry == "":
			front = append(front, r.item)
		default:
			m.back(r, r.entry, r.task.Token, r.tried, r.died+died)
		}
		if died > 0 && !isKey(r.entry) {
			m.ledger[r.payload] += died
		}
		returned++
	}
	m.list = append(front, m.list...)
	return returned
}

func (m *model) retry(worker, process string, due int64) {
	r := m.let(worker, process)
	if len(r.canceledName) > 0 {
		m.end(r)
		return
	}
	m.back(r, cmp.Or(r.entry, "r:"+process), due, r.tried+1, r.died)
}

func (m *model) fail(worker, process, kind, reason string, now int64) {
	r := m.let(worker, process)
	if len(r.canceledName) > 0 {
		m.end(r)
		return
	}
	m.bury(r, process, worker, kind, reason, now)
}

func (m *model) bury(r running, id, worker, kind, reason string, now int64) {
	g := grave{payload: r.payload, kind: kind, reason: reason, worker: worker, tries: r.tried, deaths: r.died, at: now}
	if isKey(r.entry) {
		g.from = r.entry
	} else {
		g.deaths = m.ledger[r.payload]
		delete(m.ledger, r.payload)
	}
	m.failed[id] = g
	if r.task != nil {
		m.end(r)
	}
	m.unlock(r.item)
}

// graves are the failed tasks, newest first.
func (m *model) graves() []string {
	return slices.SortedFunc(maps.Keys(m.failed), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.failed[b].at, m.failed[a].at), cmp.Compare(b, a))
	})
}

func (m *model) requeue(ids []string, now int64) (n int) {
	for _, id := range ids {
		g, there := m.failed[id]
		_, taken := m.entries[g.from]
		if !there || taken {
			continue
		}
		delete(m.failed, id)
		if g.from == "" {
			m.push(g.payload)
		} else {
			m.put(g.from, change{payload: g.payload}, now)
		}
		n++
	}
	return n
}

func (m *model) cancel(payload string) (removed int) {
	m.list = slices.DeleteFunc(m.list, func(i item) bool {
		if i.payload == payload {
			m.unlock(i)
			removed++
		}
		return i.payload == payload
	})
	for name, e := range m.entries {
		if e.waits && e.payload == payload {
			m.remove(name)
			removed++
		}
	}
	delete(m.ledger, payload)
	m.stopRunning(digestOf(payload), func(r running) bool { return r.payload == payload })
	return removed
}

func (m *model) stopRunning(name string, which func(running) bool) {
	for _, runs := range m.held {
		for i, r := range runs {
			if which(r) && !slices.Contains(r.canceledName, name) {
				runs[i].canceledName = append(slices.Clip(r.canceledName), name)
			}
		}
	}
}

func (m *model) delete() {
	for _, i := range m.list {
		m.unlock(i)
	}
	m.list = nil
	for _, name := range slices.Collect(maps.Keys(m.entries)) {
		m.remove(name)
	}
	clear(m.ledger)
}

// waiting is what Tasks yields.
func (m *model) waiting(now int64) (due, later []string) {
	for _, name := range m.scheduled() {
		if e := m.entries[name]; e.due <= now {
			due = append(due, e.payload)
		} else {
			later = append(later, e.payload)
		}
	}
	for _, i := range m.list {
		due = append(due, i.payload)
	}
	return due, later
}

// state is what the model expects. By its form, what runs has one owner, a
// member, and a key no more than one process; and each task is in one place.
func (m *model) state() state {
	s := state{}
	s.sorted("what is wrong", m.wrong)
	var list, schedule, contents, entries, ledger, locks []string
	where := map[item]string{}
	for at, i := range m.list {
		list = append(list, i.payload)
		where[i] = "w:" + decimal(at)
	}
	for worker, runs := range m.held {
		var working []string
		for _, r := range runs {
			working = append(working, r.task.AttemptID+"="+decimal(r.task.Token))
			s.set("process:"+r.task.AttemptID, r.payload)
			where[r.item] = "p:" + r.task.AttemptID
			if r.entry != "" {
				entries = append(entries, r.task.AttemptID+"="+r.entry)
				s["keyed:"+r.entry] = fmt.Sprintf("process=%s tried=%d died=%s", r.task.AttemptID, r.tried, countOf(r.entry, decimal(r.died)))
			}
		}
		s.set("working:"+worker, working...)
	}
	for name, e := range m.entries {
		if !e.waits {
			continue
		}
		where[e.item] = "e:" + name
		contents = append(contents, e.payload+":"+name)
		fields := fmt.Sprintf("payload=%s due=%d retries=%d crashes=%s", e.payload, e.due, e.retries, countOf(name, decimal(e.crashes)))
		if e.apart {
			fields += " and digest=" + digestOf(e.payload)
		}
		if e.process != "" {
			s["keyed:"+name] += " " + fields + " " + rulesOf(e.blocked)
		} else {
			s["keyed:"+name] = fields
		}
	}
	for _, name := range m.scheduled() {
		schedule = append(schedule, name+"="+decimal(m.entries[name].due))
	}
	for payload, n := range m.ledger {
		ledger = append(ledger, payload+"="+decimal(n))
	}
	for payload, n := range m.locks {
		locks = append(locks, payload+"="+where[item{payload, n}])
	}
	s.set("queues", list...)
	s.set("schedule", schedule...)
	s.sorted("contents", contents)
	s.sorted("entries", entries)
	s.sorted("ledger", ledger)
	s.sorted("unique", locks)
	members := slices.Collect(maps.Keys(m.held))
	s.sorted("workers", members)
	if len(members) > 0 {
		s.sorted("rounds", append(members, "fence"))
	}
	if m.paused {
		s.set("paused", "1")
	}
	m.buried(s)
	return s
}

func (m *model) buried(s state) {
	var schedule, contents []string
	for _, id := range slices.Backward(m.graves()) {
		g := m.failed[id]
		schedule = append(schedule, "k:"+id+"="+decimal(g.at))
		contents = append(contents, g.payload+":k:"+id)
		s["failed:keyed:k:"+id] = fmt.Sprintf("payload=%s due=%d retries=0 crashes=0 kind=%s reason=%s tries=%d deaths=%d worker=%s at=%d from=%s",
			g.payload, g.at, g.kind, g.reason, g.tries, g.deaths, g.worker, g.at, g.from)
	}
	s.set("failed:schedule", schedule...)
	s.sorted("failed:contents", contents)
}
