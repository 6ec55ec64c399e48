package api

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
)

// A model is the queue of TestRandom in plain Go: what docs/protocol.md says, without rounds, pages and lost messages.
type model struct {
	list    []string          // raw tasks, the front first
	named   map[string]*entry // that wait or run, by name
	held    []*attempt        // in the order of their starts
	failed  []*deadTask       // the newest last
	crashes map[string]int    // of raw tasks, by payload
	results map[string]string // by key
	nonces  map[string]bool
	paused  bool
	place   int64 // the last in use
	begin   int64 // ms; later times are ahead until the test ends
}

// A content is what is stored of a named task. A raw one has only a payload.
type content struct {
	payload string
	headers map[string]string
	expired bool
	keeps   bool // its result
}

// An entry is a named task, or a raw one that runs, without a name. Names are as in the protocol, with payloads for
// digests.
type entry struct {
	content
	name             string
	state            inspect.NamedState // "" while it runs
	order            int64              // its place; its time in ms if it's scheduled
	retries, crashes int
	behind           *put
}

// A put is what an Add asks for under a name.
type put struct {
	content
	at           int64 // ms; 0: now
	rule         worqr.Reschedule
	keep, counts bool
}

// An attempt is what a peer holds. Its counts are those when it started.
type attempt struct {
	*entry
	task             *worqr.Task
	peer             int
	token            int64
	retries, crashes int
	canceled         bool
}

// A deadTask is a task in the failed queue.
type deadTask struct {
	content
	name, kind, text string
	retries, crashes int
}

const (
	mostCrashes = 3       // with so many, a task fails; with one less, it's risky
	returned    = 1 << 52 // what the place of a returned task is below its token
)

func newModel(begin int64) *model {
	return &model{named: map[string]*entry{}, crashes: map[string]int{}, results: map[string]string{}, nonces: map[string]bool{}, begin: begin}
}

func hasKey(name string) bool { return strings.HasPrefix(name, "k:") }

func (e *entry) isRaw() bool { return e.name == "" || strings.HasPrefix(e.name, "r:") }

// in returns the entries in a state, in order.
func (m *model) in(state inspect.NamedState) (all []*entry) {
	for _, e := range m.named {
		if e.state == state {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.name, b.name)) })
	return all
}

// giveName gives a raw task a name: it leaves the list.
func (m *model) giveName(e *entry) {
	m.place++
	e.name, e.order = fmt.Sprintf("r:%s:%d", e.payload, m.place), m.place
	m.named[e.name] = e
}

// wait has a task wait for a time, or behind all that are ready.
func (m *model) wait(e *entry, at int64) {
	e.state, e.order = inspect.NamedScheduled, at
	if at <= m.begin {
		m.place++
		e.state, e.order = inspect.NamedReady, m.place
	}
}

// time returns when the task that stays may start, if one waits until at, or may start if that's 0.
func (p *put) time(at int64) int64 {
	switch p.rule {
	case worqr.RescheduleNever:
		return at
	case worqr.RescheduleIfLater:
		return max(at, p.at)
	case worqr.RescheduleIfEarlier:
		return min(at, p.at)
	}
	return p.at
}

// add adds a task under a name.
func (m *model) add(name string, p put) {
	e := m.named[name]
	switch {
	case e == nil:
		e = &entry{name: name, content: p.content}
		m.named[name] = e
		m.wait(e, p.at)
		return
	case e.state == "":
		m.addBehind(e, p)
		return
	}
	at := int64(0)
	if e.state == inspect.NamedScheduled {
		at = e.order
	}
	m.replace(e, &p)
	if wanted := p.time(at); wanted != at {
		m.wait(e, wanted)
	} else if e.state == inspect.NamedRisky && !p.counts {
		e.state = inspect.NamedReady
	}
}

// replace gives a task that waits what a put asks for, except for its time.
func (m *model) replace(e *entry, p *put) {
	if !p.keep {
		if !p.keeps {
			m.result(e.name, e.content, "replaced", "")
		}
		e.content = p.content
	}
	if !p.counts {
		e.retries, e.crashes = 0, 0
	}
}

// addBehind has a task wait behind the one that runs.
func (m *model) addBehind(e *entry, p put) {
	if was := e.behind; was != nil {
		p.at, p.counts = p.time(was.at), p.counts && was.counts
		if p.keep {
			p.keep, p.content = was.keep, was.content
		} else if !e.keeps && !p.keeps {
			m.result(e.name, was.content, "replaced", "")
		}
	}
	e.behind = &p
}

// result stores how a task has ended.
func (m *model) result(name string, c content, how, text string) {
	if c.keeps {
		m.results[store.KeyOf(name)] = fmt.Sprintf("%s %q", how, text)
	}
}

// back has a named task wait again: until a time, or in front if that's 0.
func (m *model) back(h *attempt, at int64) {
	wanted := at
	if b := h.behind; b != nil {
		h.behind, wanted = nil, b.time(at)
		m.replace(h.entry, b)
	}
	if m.wait(h.entry, wanted); at == 0 && wanted == 0 {
		h.order = h.token - returned
	}
}

// over ends a task for good. What waits behind it takes its place.
func (m *model) over(e *entry) {
	if e.isRaw() {
		delete(m.crashes, e.payload)
	}
	delete(m.named, e.name)
	if b := e.behind; b != nil {
		m.add(e.name, put{content: b.content, at: b.at})
	}
}

// end ends an attempt as a method of Task does, or fails it as verb says. At is when the task starts again, and text the
// result or the error.
func (m *model) end(h *attempt, verb string, at int64, text string) {
	m.held = slices.DeleteFunc(m.held, func(o *attempt) bool { return o == h })
	switch {
	case verb == "Finish":
		m.result(h.name, h.content, "finished", text)
		m.over(h.entry)
	case h.canceled:
		m.result(h.name, h.content, "canceled", "")
		m.over(h.entry)
	case verb == "Stop" && h.name == "":
		m.list = slices.Insert(m.list, 0, h.payload)
	case verb == "Stop":
		m.back(h, 0)
	case verb == "Retry" || verb == "Snooze":
		if h.name == "" {
			m.giveName(h.entry)
		}
		if verb == "Retry" {
			h.entry.retries++
		}
		m.back(h, at)
	default:
		m.fail(h.entry, verb, text)
	}
}

// fail moves a task to the failed queue.
func (m *model) fail(e *entry, kind, text string) {
	d, how := &deadTask{e.content, e.name, kind, text, e.retries, e.crashes}, "failed"
	if e.isRaw() {
		d.name, d.crashes = "", m.crashes[e.payload]
	}
	if kind == "expired" {
		how = kind
	}
	m.failed = append(m.failed, d)
	m.result(e.name, e.content, how, text)
	m.over(e)
}

// leave returns what a peer holds, the newest first and canceled ones last, and returns how many tasks came back.
func (m *model) leave(peer int, crashed bool) (n int) {
	held := m.heldBy(peer)
	slices.SortFunc(held, func(a, b *attempt) int { return cmp.Compare(b.score(), a.score()) })
	for _, h := range held {
		if !h.canceled {
			n++
		}
		if crashed && !h.canceled && h.isRaw() {
			m.crashes[h.payload]++
		} else if crashed {
			h.entry.crashes++
		}
		m.end(h, "Stop", 0, "")
	}
	return n
}

// score is the attempt's in the set of its worker: its token, which is negative if it must stop.
func (h *attempt) score() int64 {
	if h.canceled {
		return -h.token
	}
	return h.token
}

func (m *model) heldBy(peer int) (all []*attempt) {
	for _, h := range m.held {
		if h.peer == peer {
			all = append(all, h)
		}
	}
	return all
}

// start starts up to n tasks for a peer. What must not be handled fails. If nothing else came, others are asked for.
func (m *model) start(peer, n int, token int64) (all []*attempt) {
	for !m.paused {
		solo := !slices.ContainsFunc(m.heldBy(peer), func(h *attempt) bool { return h.crashes >= mostCrashes-1 })
		begun := m.round(n, token, solo)
		token += int64(len(begun))
		for _, h := range begun {
			h.peer = peer
			m.held = append(m.held, h)
		}
		for _, h := range slices.Backward(begun) { // as finish does
			if h.expired {
				m.end(h, "expired", 0, "its time was over before it started")
			} else if h.crashes >= mostCrashes {
				m.end(h, "crashed", 0, fmt.Sprint(h.crashes, " workers died holding it"))
			}
		}
		for _, h := range begun {
			if slices.Contains(m.held, h) {
				all = append(all, h)
			}
		}
		if len(all) > 0 || len(begun) == 0 || len(m.list)+len(m.in(inspect.NamedReady)) == 0 {
			break
		}
	}
	return all
}

// round starts up to n tasks: a risky one if it may, those that came back, and then ready ones and the list in turn.
func (m *model) round(n int, token int64, solo bool) (begun []*attempt) {
	begin := func(e *entry) {
		crashes := e.crashes
		if e.isRaw() {
			crashes = m.crashes[e.payload]
		}
		risky := crashes >= mostCrashes-1
		if risky && !solo {
			if e.name == "" {
				m.giveName(e)
			}
			e.state = inspect.NamedRisky
			return
		}
		solo = solo && !risky
		token++
		e.state = ""
		begun = append(begun, &attempt{entry: e, token: token, retries: e.retries, crashes: crashes})
	}
	if risky := m.in(inspect.NamedRisky); solo && len(risky) > 0 {
		begin(risky[0])
		solo = false
	}
	for _, e := range m.in(inspect.NamedReady) {
		if e.order < 0 && len(begun) < n {
			begin(e)
		}
	}
	for turn := token%2 == 0; len(begun) < n; turn = !turn {
		ready := m.in(inspect.NamedReady)
		switch {
		case len(ready)+len(m.list) == 0:
			return begun
		case turn && len(ready) > 0:
			begin(ready[0])
		case !turn && len(m.list) > 0:
			e := &entry{content: content{payload: m.list[0]}}
			m.list = m.list[1:]
			begin(e)
		}
	}
	return begun
}

// cancel removes what waits of a payload, and marks what runs. Tasks with keys aren't concerned.
func (m *model) cancel(payload string) (removed int) {
	before := len(m.list) + len(m.named)
	m.list = slices.DeleteFunc(m.list, func(p string) bool { return p == payload })
	maps.DeleteFunc(m.named, func(name string, e *entry) bool { return e.state != "" && e.payload == payload && !hasKey(name) })
	delete(m.crashes, payload)
	for _, h := range m.held {
		h.canceled = h.canceled || h.payload == payload && !hasKey(h.name)
	}
	return before - len(m.list) - len(m.named)
}

// remove removes what waits under a key; how says why. A cancel marks what runs, too.
func (m *model) remove(key, how string) bool {
	e := m.named["k:"+key]
	if e == nil {
		return false
	}
	if e.state != "" {
		m.result(e.name, e.content, how, "")
		delete(m.named, e.name)
		return true
	}
	for _, h := range m.held {
		h.canceled = h.canceled || h.entry == e && how == "canceled"
	}
	b := e.behind
	if b != nil && !e.keeps {
		m.result(e.name, b.content, how, "")
	}
	e.behind = nil
	return b != nil
}

// delete removes all that waits.
func (m *model) delete() {
	m.list = nil
	clear(m.crashes)
	maps.DeleteFunc(m.named, func(_ string, e *entry) bool { e.behind = nil; return e.state != "" })
}

// requeue moves a failed task back, unless another one has its name.
func (m *model) requeue(d *deadTask) bool {
	switch {
	case d.name == "":
		m.list = append(m.list, d.payload)
	case m.named[d.name] != nil:
		return false
	default:
		d.expired = false
		m.add(d.name, put{content: d.content})
		delete(m.results, store.KeyOf(d.name))
	}
	return true
}

// lines says what the queue holds.
func (m *model) lines() (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for _, p := range m.list {
		add("list %s", p)
	}
	ready, scheduled, risky := m.in(inspect.NamedReady), m.in(inspect.NamedScheduled), m.in(inspect.NamedRisky)
	for _, e := range slices.Concat(ready, scheduled, risky) {
		add("%s key %q %v retries %d crashes %d %s", e.state, store.KeyOf(e.name), e.headers, e.retries, e.crashes, e.payload)
	}
	behind := 0
	for _, name := range slices.Sorted(maps.Keys(m.named)) {
		if e := m.named[name]; e.behind != nil {
			behind++
			add("%s key %q %v retries 0 crashes 0 %s", inspect.NamedBlocked, store.KeyOf(name), e.behind.headers, e.behind.payload)
		}
	}
	for _, h := range m.held {
		add("running %s token %d key %q %v retries %d %s", h.task.AttemptID, h.token, store.KeyOf(h.name), h.headers, h.retries, h.payload)
	}
	for _, d := range slices.Backward(m.failed) {
		add("failed key %q %s %q %v retries %d crashes %d %s", store.KeyOf(d.name), d.kind, d.text, d.headers, d.retries, d.crashes, d.payload)
	}
	add("waiting %d scheduled %d running %d failed %d paused %v", len(m.list)+len(ready)+len(risky), len(scheduled)+behind, len(m.held), len(m.failed), m.paused)
	return all
}
