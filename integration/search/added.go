package search

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/keys"
)

// Added tasks.
//
// The id of an added task follows from its number, and precedes all ids that the specification
// makes. Tasks are added in the order of their numbers.

const (
	salt     = "0123456789abc"
	saltCard = salt + "0"
)

func itemID(task uint8) string { return "999-" + strconv.Itoa(int(task)) }

// addedEntry returns the entry of an added task.
func addedEntry(task uint8) string {
	key, _ := keys.AddedKey(itemID(task), salt) // any id and salt will do
	return "k:" + key
}

// keyed returns the number of the entry that cancels of the key are about.
func (sc *scope) keyed() int { return bit(len(sc.tasks) > 0 && sc.tasks[0].added) }

// entryName returns the name of an entry from its number.
func (c *codec) entryName(i int) string {
	switch {
	case i == 0:
		return theKey
	case i <= len(c.scope.tasks) && c.scope.tasks[i-1].added:
		return addedEntry(uint8(i))
	}
	return "r:t" + strconv.Itoa(i)
}

// addedOf returns the number of the entry that an added task runs from; 0 if it isn't one.
func (c *codec) addedOf(value string) int {
	key, card, ok := keys.SplitAdded(value)
	if !ok || card == "" {
		return 0
	}
	return c.entryOf("k:"+key, nil)
}

// digest returns what contents calls an entry.
func (c *codec) digest(i int, payload string) string {
	if i > 0 && i <= len(c.scope.tasks) && c.scope.tasks[i-1].added {
		return lane.Digest(c.entryName(i))
	}
	return lane.Digest(payload)
}

// putAdded stores the stream.
func (c *codec) putAdded(s *spec.Store, r *redis) {
	var items [][]string
	for _, t := range r.added {
		if t != 0 {
			items = append(items, []string{itemID(t), saltCard, c.payloads[t]})
		}
	}
	if len(items) > 0 {
		s.Set(queue.Added(), items)
	}
}

// tie returns what the hash of running entries holds about an added task from the stream.
func tie(task, process uint8) (value, name, runner string) {
	name = "a:" + itemID(task) + "-" + salt
	return name + "0", name, processID(process) + ":" + workerID(workerOf(process))
}

// readRunning reads the hash of running entries.
func (c *codec) readRunning(r, was *redis, v hash) {
	for id, name := range v {
		if _, card, ok := keys.SplitAdded(id); ok && card == "" {
			continue // the other field of an added task has the same information
		}
		p := uint8(numbered(id, "p"))
		if at := c.addedOf(name); at > 0 {
			r.process[p-1].entry, r.process[p-1].added, r.entry[at].process = uint8(1+at), true, p
			if _, named, runner := tie(uint8(at), p); v[named] != runner {
				panic(fmt.Sprintf("%s runs as %q", named, v[named]))
			}
			continue
		}
		r.process[p-1].entry = uint8(1 + c.entryOf(name, was))
	}
}

// queued blames an added task that has started before one that was added earlier.
func (o *observation) queued(p process) {
	if p.added && slices.ContainsFunc(o.s.redis.added[:], func(t uint8) bool { return t > 0 && t < p.task }) {
		o.s.blame(overtakes)
	}
}

// addedGone checks what a cancel of the key removes from the stream.
func (o *observation) addedGone(name int) {
	for _, t := range o.was.added {
		if t > 0 && o.covers(name, t, 1+t) && !o.s.redis.has(t) {
			o.s.over(t, gaveUp)
		}
	}
}
