package worqrprom

import (
	"maps"
	"strings"
	"sync"
)

// Labels decide which queues have a label of their own in the counts of this process, and which share Other: the first
// ones have one, and those that are served here.
type labels struct {
	most int

	mu      sync.Mutex // protects the fields below
	own     map[string]bool
	running map[attempts]int
}

// Attempts are those of a queue with one handler.
type attempts struct{ queue, handler string }

func newLabels(most int) *labels {
	return &labels{most: most, own: map[string]bool{}, running: map[attempts]int{}}
}

// of returns the label of a queue in which something happens.
func (l *labels) of(queue string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.own[queue] && len(l.own) >= l.most {
		return Other
	}
	return l.ownLocked(queue)
}

func (l *labels) ownLocked(queue string) string {
	l.own[queue] = true
	return strings.ToValidUTF8(queue, "\uFFFD") // a label that isn't UTF-8 would panic
}

// add changes the number of running attempts of a queue that's served here, and returns its label.
func (l *labels) add(queue, handler string, n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	label := l.ownLocked(queue)
	l.running[attempts{label, handler}] += n
	return label
}

// inProgress returns the number of running attempts, by label.
func (l *labels) inProgress() map[attempts]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.running)
}
