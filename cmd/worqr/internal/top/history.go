package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// samples limits the rates that are kept.
const samples = 40

// A history has the rates of a queue.
type history struct {
	last    *inspect.QueueStats
	at      time.Time
	marks   [2]mark   // one to two minutes ago, and less
	quiet   time.Time // since when no task has started
	started []float64 // tasks a second, newest last
	arrived float64
}

func (h *history) add(at time.Time, q inspect.QueueStats) {
	if s := at.Sub(h.at).Seconds(); h.last != nil && s > 0 {
		starts := float64(max(0, q.Tokens-h.last.Tokens))
		come := float64(q.Waiting+q.Scheduled-h.last.Waiting-h.last.Scheduled) + starts
		h.arrived = max(0, come/s)
		h.started = append(h.started, starts/s)
		h.started = h.started[max(0, len(h.started)-samples):]
	}
	if h.last == nil || q.Tokens != h.last.Tokens {
		h.quiet = at
	}
	if h.last == nil {
		h.marks = [2]mark{{at, q}, {at, q}}
	} else if at.Sub(h.marks[1].at) >= time.Minute {
		h.marks = [2]mark{h.marks[1], {at, q}}
	}
	h.last, h.at = &q, at
}

// A mark is what was read at a time, with which later counts are compared.
type mark struct {
	at time.Time
	inspect.QueueStats
}

// recent returns what has changed within a minute or two.
func (h *history) recent() inspect.Recent {
	from := &h.marks[0]
	return inspect.Recent{Over: h.at.Sub(from.at), Waiting: h.last.Waiting - from.Waiting, Failed: h.last.Failed - from.Failed,
		Started: int(max(0, h.last.Tokens-from.Tokens)), NoStart: h.at.Sub(h.quiet)}
}

// rate returns how many tasks started in the last second.
func (h *history) rate() float64 {
	if h == nil || len(h.started) == 0 {
		return 0
	}
	return h.started[len(h.started)-1]
}

var bars = []rune("▁▂▃▄▅▆▇█")

// spark draws the last rates, scaled to the highest.
func (h *history) spark(width int) string {
	if h == nil || width <= 0 {
		return ""
	}
	some := h.started[max(0, len(h.started)-width):]
	highest := 0.0
	for _, rate := range some {
		highest = max(highest, rate)
	}
	var b strings.Builder
	b.WriteString(strings.Repeat(" ", width-len(some)))
	for _, rate := range some {
		i := 0
		if highest > 0 {
			i = int(rate / highest * float64(len(bars)-1))
		}
		b.WriteRune(bars[i])
	}
	return b.String()
}

// An order is a column to sort queues by.
type order int

const (
	byName order = iota
	byWaiting
	byRunning
	byFailed
	byRate
	byOldest
	orders
)

var orderNames = [orders]string{"name", "waiting", "running", "failed", "rate", "oldest"}

// sort puts the queues in order, the largest first.
func (m *model) sort() {
	if m.now == nil {
		return
	}
	slices.SortStableFunc(m.now.Queues, func(a, b Queue) int {
		least := 0
		switch m.by {
		case byWaiting:
			least = cmp.Compare(b.Waiting, a.Waiting)
		case byRunning:
			least = cmp.Compare(b.Running, a.Running)
		case byFailed:
			least = cmp.Compare(b.Failed, a.Failed)
		case byRate:
			least = cmp.Compare(m.past[b.Name].rate(), m.past[a.Name].rate())
		case byOldest:
			least = cmp.Compare(b.Oldest, a.Oldest)
		}
		return cmp.Or(least, cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(m.now.Workers, func(a, b inspect.Worker) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	m.move(0)
}

// chosenAt returns the row of the selected queue; -1 if there is none.
func (m *model) chosenAt() int {
	if m.now == nil {
		return -1
	}
	return slices.IndexFunc(m.now.Queues, func(q Queue) bool { return q.Name == m.chosen })
}

func (m *model) choice() *Queue {
	i := m.chosenAt()
	if i < 0 {
		return nil
	}
	q := m.now.Queues[i]
	return &q
}

// move selects another queue, and scrolls to it.
func (m *model) move(by int) {
	if m.now == nil || len(m.now.Queues) == 0 {
		return
	}
	i := min(max(max(m.chosenAt(), 0)+by, 0), len(m.now.Queues)-1)
	m.chosen = m.now.Queues[i].Name
	room := m.room()
	m.first = min(max(m.first, i-room+1, 0), i)
}
