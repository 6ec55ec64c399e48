package search

import (
	"fmt"
	"strings"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/internal/words"
)

// A scope bounds a search: the workers, the tasks, and what may happen.
type scope struct {
	name      string
	workers   int  // the last one is the survivor
	successor bool // each worker comes after the one before has gone: a peer under its next id
	lanes     int  // rounds that a worker has in flight at the same time
	capacity  int  // tasks that a worker has at the same time
	tasks     []task
	waiting   int // how many of them wait from the start
	verbs     []verb
	cancels   byte // the payload to cancel
	pages     bool // a cancel removes one copy with each page
	deaths    bool // a worker may be evicted at any time
	lapses    bool // its lease lapses, and it is suspected first
	faults    budget
}

type task struct {
	payload byte
	unique  bool // refused while another of the key waits or runs
	key     bool
	keep    bool
	added   bool // it has a card, and a key of its own
}

// plain returns n tasks without properties.
func plain(n int) []task { return make([]task, n) }

// scopes has the scopes that no other scope contains with more of the same faults, tasks or rounds.
var scopes = []scope{
	{
		name: "workers die", workers: 2, lanes: 1, capacity: 2, deaths: true,
		tasks: plain(3), waiting: 3, verbs: []verb{finish, stop}, faults: budget{crashes: 1},
	},
	{
		name: "two workers die", workers: 3, lanes: 1, capacity: 1, deaths: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish},
	},
	{
		name: "lapsed and suspected", workers: 2, lanes: 1, capacity: 2, lapses: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{crashes: 1},
	},
	{
		name: "replies are lost", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish, stop}, faults: budget{lost: 1, late: 1, refused: 1},
	},
	{
		name: "three rounds, three tasks", workers: 2, lanes: 3, capacity: 3,
		tasks: plain(3), waiting: 3, verbs: []verb{finish}, faults: budget{lost: 1},
	},
	{
		name: "three rounds, and back under a new id", workers: 3, successor: true, lanes: 3, capacity: 2, deaths: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{lost: 1},
	},
	{
		name: "four rounds in flight", workers: 2, lanes: 4, capacity: 3,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{lost: 1, late: 1},
	},
	{
		name: "four rounds, tasks returned", workers: 2, lanes: 4, capacity: 2,
		tasks: plain(2), waiting: 2, verbs: []verb{stop, finish}, faults: budget{refused: 1},
	},
	{
		name: "four rounds of a dead worker", workers: 2, lanes: 4, capacity: 2, deaths: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{late: 1},
	},
	{
		name: "four rounds, leaving and joining again", workers: 2, lanes: 4, capacity: 2,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{leaves: 1, late: 1},
	},
	{
		name: "a late join and a late round", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: plain(2), waiting: 1, verbs: []verb{finish}, faults: budget{leaves: 1, late: 1, lateJoins: 1},
	},
	{
		name: "leaving while being evicted, and a late join", workers: 2, lanes: 1, capacity: 2, deaths: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{leaves: 1, late: 1, lateJoins: 1},
	},
	{
		name: "leaving and joining again", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: plain(2), waiting: 1, verbs: []verb{finish}, faults: budget{leaves: 2, late: 2},
	},
	{
		name: "back under a new id", workers: 3, successor: true, lanes: 1, capacity: 1, deaths: true,
		tasks: plain(2), waiting: 2, verbs: []verb{finish}, faults: budget{late: 1},
	},
	{
		name: "canceled while it runs", workers: 2, lanes: 1, capacity: 2, deaths: true,
		tasks: []task{{payload: 'x'}, {payload: 'x'}}, waiting: 1, verbs: []verb{finish, stop}, cancels: 'x',
		faults: budget{cancels: 2},
	},
	{
		name: "canceled, and retried", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{payload: 'x'}, {payload: 'x'}}, waiting: 1, verbs: []verb{finish, retry}, cancels: 'x',
		faults: budget{cancels: 1},
	},
	{
		name: "canceled, and its worker dies", workers: 2, lanes: 1, capacity: 2, deaths: true,
		tasks: []task{{}, {payload: 'x'}}, waiting: 2, verbs: []verb{finish}, cancels: 'x',
		faults: budget{crashes: 1, cancels: 1},
	},
	{
		name: "canceled, and two workers die", workers: 3, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{payload: 'x'}, {payload: 'x'}}, waiting: 2, verbs: []verb{finish}, cancels: 'x',
		faults: budget{cancels: 1},
	},
	{
		name: "canceled between two rounds", workers: 2, lanes: 2, capacity: 2,
		tasks: []task{{payload: 'x'}, {payload: 'x'}}, waiting: 2, verbs: []verb{finish}, cancels: 'x',
		faults: budget{lost: 1, late: 1, cancels: 1},
	},
	{
		name: "canceled between three rounds", workers: 2, lanes: 3, capacity: 2,
		tasks: []task{{payload: 'x'}, {payload: 'x'}}, waiting: 2, verbs: []verb{finish}, cancels: 'x',
		faults: budget{lost: 1, cancels: 1},
	},
	{
		name: "a key put again", workers: 2, lanes: 1, capacity: 2, deaths: true,
		tasks: []task{{key: true}, {key: true}, {key: true, keep: true}}, waiting: 1, verbs: []verb{finish, stop, retry},
		faults: budget{crashes: 1, lost: 1, late: 1},
	},
	{
		name: "a key, and two rounds in flight", workers: 2, lanes: 2, capacity: 2,
		tasks: []task{{key: true}, {key: true}}, waiting: 1, verbs: []verb{finish, retry}, faults: budget{late: 1},
	},
	{
		name: "a key canceled", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{key: true}, {key: true}, {}}, waiting: 2, verbs: []verb{finish, stop, retry},
		faults: budget{keyCancels: 1},
	},
	{
		name: "a unique task of a dead worker", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{}, {key: true, unique: true}, {key: true, unique: true}}, waiting: 2,
		verbs: []verb{finish, retry},
	},
	{
		name: "a unique task canceled", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{}, {key: true, unique: true}, {key: true, unique: true}}, waiting: 2,
		verbs: []verb{finish, stop}, faults: budget{keyCancels: 1},
	},
	{
		name: "canceled in pages", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{payload: 'x'}, {payload: 'x'}, {payload: 'x'}}, waiting: 2, verbs: []verb{finish, stop},
		cancels: 'x', pages: true, faults: budget{cancels: 1},
	},
	{
		name: "canceled in pages, and retried", workers: 1, lanes: 1, capacity: 2,
		tasks: []task{{payload: 'x'}, {payload: 'x'}, {payload: 'x'}}, waiting: 2, verbs: []verb{finish, retry},
		cancels: 'x', pages: true, faults: budget{cancels: 1},
	},
	{
		name: "canceled in three pages", workers: 1, lanes: 1, capacity: 2,
		tasks: []task{{payload: 'x'}, {payload: 'x'}, {payload: 'x'}, {payload: 'x'}}, waiting: 3, verbs: []verb{finish, stop},
		cancels: 'x', pages: true, faults: budget{cancels: 1},
	},
	{
		name: "canceled in pages, with a key", workers: 1, lanes: 1, capacity: 2,
		tasks: []task{{payload: 'x', key: true}, {payload: 'x'}, {payload: 'x'}, {payload: 'x'}}, waiting: 3, verbs: []verb{finish, retry},
		cancels: 'x', pages: true, faults: budget{cancels: 1},
	},
	{
		name: "added tasks", workers: 2, lanes: 1, capacity: 1, deaths: true,
		tasks: []task{{added: true}, {added: true}}, waiting: 1, verbs: []verb{finish, stop, retry}, faults: budget{lost: 1, keyCancels: 1},
	},
}

// A search explores a scope, or leases.
type search struct {
	name   string
	bounds string
	search func(without spec.Guard) finding
}

const limit = 5_000_000 // states

func searches() (all []search) {
	for _, sc := range scopes {
		all = append(all, search{sc.name, sc.String(), func(without spec.Guard) finding {
			return explore(newModel(sc, without), limit)
		}})
	}
	for _, l := range clockworks {
		all = append(all, search{l.name, l.String(), l.search})
	}
	return all
}

func (l leases) search(without spec.Guard) finding {
	l.without, l.looked = without, map[looking]looking{}
	return explore(&l, limit)
}

// beyond returns searches that find a violation of something that the protocol doesn't promise.
// Their bounds explain why that is acceptable.
func beyond() []search {
	storm := leases{peers: 2, stalls: 4, jumps: 2, flickers: true}
	return []search{
		{"Redis stalls twice within a lease, and its clock jumps in between", "The worker comes back under a new id, as after any false eviction; its tasks run again. " +
			"It takes four faults in the right order, and an old beat that arrives just then.", storm.search},
	}
}

// String describes the bounds.
func (sc scope) String() string {
	all := []string{words.Several(sc.workers, "worker"), words.Several(len(sc.tasks), "task")}
	if sc.lanes > 1 {
		all = append(all, [maxLanes + 1]string{2: "two", 3: "three", 4: "four"}[sc.lanes]+" rounds at once")
	}
	if sc.capacity > 1 {
		all = append(all, words.Several(sc.capacity, "task")+" at once")
	}
	f := sc.faults
	for _, of := range []struct {
		n    uint8
		what string
	}{
		{f.crashes, "death"}, {f.leaves, "leave"}, {f.lost, "lost answer"}, {f.late, "late request"},
		{f.lateJoins, "late join"}, {f.refused, "unsent round"}, {f.cancels, "cancel"}, {f.keyCancels, "cancel of a key"},
	} {
		if of.n > 0 {
			all = append(all, words.Several(int(of.n), of.what))
		}
	}
	if sc.pages {
		all = append(all, "pages of one copy")
	}
	if sc.deaths {
		all = append(all, "any number evicted")
	}
	if sc.lapses {
		all = append(all, "any number of lapses")
	}
	var ways []string
	for _, v := range sc.verbs {
		ways = append(ways, v.String())
	}
	return strings.Join(all, ", ") + "; " + strings.Join(ways, ", ")
}

func (l leases) String() string {
	return fmt.Sprintf("%d peers; ticks: %d of stalls, %d of jumps; %s", l.peers, l.stalls, l.jumps, words.Several(int(l.falls), "death"))
}
