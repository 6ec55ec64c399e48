package store

import "cmp"

// Somewhere is the home of a queue if there is only one server, or if it isn't known.
const Somewhere = ""

// An absence records unusable cluster nodes for callers that go through many keys: they skip the
// other keys of such a node, since each call would wait for its timeout.
type absence struct {
	of   Runner
	away map[string]bool // nodes
	err  error           // the first one
}

// owning returns the node that owns a key.
type owning interface{ Owner(key string) string }

// home returns the node that has a key; "" if it isn't known.
func (a *absence) home(key string) string {
	if o, ok := a.of.(owning); ok {
		return o.Owner(key)
	}
	return Somewhere
}

// has reports whether the node that has a key is away.
func (a *absence) has(key string) bool { return len(a.away) > 0 && a.away[a.home(key)] }

// note records why a node is away, unless err is nil.
func (a *absence) note(home string, err error) {
	if err == nil {
		return
	}
	if a.away == nil {
		a.away = map[string]bool{}
	}
	a.away[home], a.err = true, cmp.Or(a.err, err)
}

// groups returns names grouped by the nodes that have their keys.
func (a *absence) groups(names []string, key func(name string) string) map[string][]string {
	by := map[string][]string{}
	for _, name := range names {
		home := a.home(key(name))
		by[home] = append(by[home], name)
	}
	return by
}

// An Absence is an absence for queues.
type Absence struct{ absence }

// NewAbsence returns an empty Absence.
func NewAbsence(r Runner) *Absence { return &Absence{absence{of: r}} }

// Has reports whether the node that has a queue is away.
func (a *Absence) Has(q Keys) bool { return a.has(q.Waiting()) }

// Note records that the node of a queue is down, if err says so. It reports whether err does: then
// skip the queues of that node. Queues on other nodes aren't affected.
func (a *Absence) Note(q Keys, err error) bool {
	home := a.home(q.Waiting())
	if home == Somewhere || !IsAway(err) {
		return false
	}
	if !IsMoving(err) { // a moving slot affects that queue alone
		a.note(home, err)
	}
	return true
}
