package main

import (
	"fmt"
	"strings"
)

// A lane is one queue, or one failed queue.
type lane struct {
	failed    bool
	waiting   waiting
	processes map[string]string           // process → task
	working   map[string]map[string]int64 // worker → process → token
	owner     map[string]string           // process → worker
	members   map[string]bool
	fenced    map[string]string // worker → its first mark
	leaving   map[string]bool   // fenced, and what it held is being returned
	keyed     map[string]string // entry → the task that waits in it
	token     int64
	enqueued  int
	latest    int              // the number of the last task that was started for the first time
	back      map[string]int64 // worker → token of the last task returned for it
}

// A process is what a processing list was when it went.
type process struct {
	task, worker string
	lane         *lane
}

// A place is a key of a lane, taken apart.
type place struct {
	lane *lane
	kind string
	rest string // what follows the name of the queue
}

// find takes a key apart; the lane is nil if it is none of a queue.
func (r *replay) find(key string) place {
	rest, ok := strings.CutPrefix(key, r.prefix+":")
	if !ok {
		return place{}
	}
	plain, failed := strings.CutPrefix(rest, "failed:")
	kind, rest, ok := strings.Cut(plain, ":{")
	if !ok {
		return place{kind: plain}
	}
	queue, rest, _ := strings.Cut(rest, "}")
	name := fmt.Sprint(failed, queue)
	l := r.lanes[name]
	if l == nil {
		l = &lane{
			failed: failed, processes: map[string]string{}, working: map[string]map[string]int64{}, owner: map[string]string{},
			members: map[string]bool{}, fenced: map[string]string{}, leaving: map[string]bool{}, keyed: map[string]string{}, back: map[string]int64{},
		}
		r.lanes[name] = l
	}
	return place{l, kind, strings.TrimPrefix(rest, ":")}
}
