package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/worqr/worqr/integration/load"
	"github.com/worqr/worqr/internal/child"
	"github.com/worqr/worqr/internal/redistest"
)

// A fleet has the peers of one arena, for the driver. Each member has a slot. When it is killed or
// ends, a new one takes the slot.
type fleet struct {
	t       testing.TB
	dir     string      // for logs
	spec    load.Config // for each peer, except for its name and URL
	journal *journal    // of the driver
	env     []string    // of the peers
	place   func(slot int) (url string, before []string)
	members []*member
	left    []*member // were asked to end
	count   int
}

// A member is one peer process.
type member struct {
	*load.Process
	asleep bool
	killed bool
}

// start starts n peers and waits until all of them serve.
func (f *fleet) start(n int) {
	f.members = make([]*member, n)
	f.t.Cleanup(f.destroy)
	for slot := range f.members {
		f.spawn(slot)
	}
	f.await("to serve", func(m *member) <-chan struct{} { return m.Serving }, time.Minute)
}

// await waits until all members have reported something.
func (f *fleet) await(what string, said func(*member) <-chan struct{}, most time.Duration) {
	late := time.After(most)
	for _, m := range f.members {
		select {
		case <-said(m):
		case <-m.Exited:
			f.t.Fatalf("peer %s ended by itself: %v; see %s", m.Name, m.Err, f.log(m.Name))
		case <-late:
			f.t.Fatalf("waited %v for peer %s %s; see %s", most, m.Name, what, f.log(m.Name))
		}
	}
}

func (f *fleet) log(name string) string { return filepath.Join(f.dir, name+".log") }

// spawn starts a peer in a slot.
func (f *fleet) spawn(slot int) {
	f.count++
	spec := f.spec
	spec.Name = fmt.Sprintf("p%02d.%d", slot, f.count)
	var before []string
	spec.URL, before = f.place(slot)
	log := redistest.Sure(os.Create(f.log(spec.Name)))(f.t)
	defer func() { _ = log.Close() }() // the peer has its own handle
	p := redistest.Sure(load.Start(spec, child.Options{Env: f.env, Before: before, Errors: log}, f.journal.hear))(f.t)
	f.members[slot] = &member{Process: p}
}

func (f *fleet) say(op string, m *member, note string) {
	f.journal.say(event{Op: op, Peer: m.Name, Note: note})
}

// kill kills the peer of a slot, and returns when all its reports have been read.
func (f *fleet) kill(slot int, note string) {
	m := f.members[slot]
	m.killed = true
	f.say(opKill, m, note)
	m.Kill() // if it has already ended, end notices
	<-m.Heard
}

// stop stops the peer of a slot (SIGSTOP).
func (f *fleet) stop(slot int) {
	m := f.members[slot]
	f.say(opStop, m, "")
	_ = m.Signal(syscall.SIGSTOP) // if it has already ended, end notices
	m.asleep = true
}

// resume continues the peer of a slot if it is stopped.
func (f *fleet) resume(slot int) {
	m := f.members[slot]
	if !m.asleep {
		return
	}
	_ = m.Signal(syscall.SIGCONT) // if it has already ended, end notices
	m.asleep = false
	f.say(opCont, m, "")
}

// serves reports whether a peer serves its queues, and so handles signals.
func (m *member) serves() bool {
	select {
	case <-m.Serving:
		return true
	default:
		return false
	}
}

// replace asks the serving peer of a slot to end, and starts another at once.
func (f *fleet) replace(slot int) {
	m := f.members[slot]
	f.say(opTerm, m, "")
	_ = m.Signal(syscall.SIGTERM) // if it has already ended, end notices
	f.left = append(f.left, m)
	f.spawn(slot)
}

// quiet makes all peers stop enqueueing.
func (f *fleet) quiet() {
	for slot := range f.members {
		f.resume(slot)
		_ = f.members[slot].Tell("be calm") // if it has ended, await notices
	}
	f.await("to be calm", func(m *member) <-chan struct{} { return m.Calm }, 2*time.Minute)
}

// end asks all peers to end, waits for them, and reports those that ended badly. A peer replaced
// during a fault may fail to deregister from Redis, so Run returns an error; that isn't a crash.
func (f *fleet) end() (complaints []string) {
	for _, m := range f.members {
		f.say(opTerm, m, "")
		_ = m.Signal(syscall.SIGTERM) // it may have ended
	}
	late := time.After(time.Minute)
	for i, m := range slices.Concat(f.left, f.members) {
		select {
		case <-m.Exited:
			exit, _ := errors.AsType[*exec.ExitError](m.Err)
			farewell := i < len(f.left) && exit != nil && exit.ExitCode() == 1
			if m.Err != nil && !m.killed && !farewell {
				complaints = append(complaints, fmt.Sprintf("peer %s ended with %v; see %s", m.Name, m.Err, f.log(m.Name)))
			}
		case <-late:
			complaints = append(complaints, fmt.Sprintf("peer %s did not end within a minute; see %s", m.Name, f.log(m.Name)))
		}
	}
	return complaints
}

// destroy kills all remaining processes.
func (f *fleet) destroy() {
	for _, m := range slices.Concat(f.left, f.members) {
		if m != nil {
			m.Kill()
			<-m.Heard
		}
	}
}
