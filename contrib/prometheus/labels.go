package worqrprom

import (
	"maps"
	"strings"
	"sync"
	"time"
)

// Labels decide which queues have a label of their own in the counts of this process, and which
// share Other. A queue that's served here keeps its label. Any other loses it when another queue
// needs one and it wasn't used for a while.
type labels struct {
	most int
	drop func(queue string) // removes the series of a queue

	mu      sync.Mutex           // protects the fields below
	used    map[string]time.Time // when queues that have a label last used it
	search  time.Time            // when the next label may be unused
	served  map[string]int       // memberships of the worker in queues
	running map[attempts]int     // zero counts only of queues that have a label
}

// Attempts are those of a queue with one handler.
type attempts struct{ queue, handler string }

// unused is how long a queue keeps its label without an event. Servers scrape it in the meantime.
const unused = 5 * time.Minute

func newLabels(most int, drop func(queue string)) *labels {
	return &labels{most: most, drop: drop, used: map[string]time.Time{}, served: map[string]int{}, running: map[attempts]int{}}
}

// of returns the label of a queue in which something happens.
func (l *labels) of(queue string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ofLocked(queue)
}

func (l *labels) ofLocked(queue string) string {
	now := time.Now()
	if _, has := l.used[queue]; !has && len(l.used) >= l.most && !l.freeLocked(now, l.served[queue] > 0) {
		return Other
	}
	l.used[queue] = now
	return strings.ToValidUTF8(queue, "\uFFFD") // a label that isn't UTF-8 would panic
}

// freeLocked takes the labels of unused queues, and at least one if it's for a queue that's served
// here. It reports whether there is a free one now.
func (l *labels) freeLocked(now time.Time, urgent bool) bool {
	if now.Before(l.search) && !urgent {
		return false
	}
	l.search = now.Add(unused)
	longest := ""
	for queue, at := range l.used {
		switch {
		case l.served[queue] > 0:
		case now.Sub(at) >= unused:
			l.takeLocked(queue)
		default:
			if longest == "" || at.Before(l.used[longest]) {
				longest = queue
			}
			if free := at.Add(unused); free.Before(l.search) {
				l.search = free
			}
		}
	}
	if urgent && len(l.used) >= l.most && longest != "" {
		l.takeLocked(longest)
	}
	return len(l.used) < l.most
}

func (l *labels) takeLocked(queue string) {
	delete(l.used, queue)
	maps.DeleteFunc(l.running, func(a attempts, n int) bool { return a.queue == queue && n == 0 })
	l.drop(strings.ToValidUTF8(queue, "\uFFFD"))
}

// joined returns the label of a queue of which the worker has become a member.
func (l *labels) joined(queue, handler string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.served[queue]++
	label := l.ofLocked(queue)
	l.addLocked(attempts{queue, handler}, 0)
	return label
}

func (l *labels) left(queue string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.served[queue]--; l.served[queue] <= 0 {
		delete(l.served, queue)
	}
}

// leftAll is called when the worker has left all queues, or may have.
func (l *labels) leftAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.served)
}

// add changes the number of running attempts, and returns the queue's label.
func (l *labels) add(queue, handler string, n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	label := l.ofLocked(queue)
	l.addLocked(attempts{queue, handler}, n)
	return label
}

func (l *labels) addLocked(a attempts, n int) {
	l.running[a] += n
	if _, has := l.used[a.queue]; !has && l.running[a] == 0 {
		delete(l.running, a)
	}
}

// inProgress returns the number of running attempts, by label.
func (l *labels) inProgress() map[attempts]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	sums := map[attempts]int{}
	for a, n := range l.running {
		if _, has := l.used[a.queue]; has {
			a.queue = strings.ToValidUTF8(a.queue, "\uFFFD")
		} else {
			a.queue = Other
		}
		sums[a] += n
	}
	return sums
}
