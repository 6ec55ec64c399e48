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

// A fleet is the peers of one arena as the driver sees them. Each member has a
// slot, and a new one comes in its place when it is killed or ends.
type fleet struct {
	t       testing.TB
	dir     string      // of logs
	spec    load.Config // of each, but for what tells them apart
	journal *journal    // of the driver
	env     []string    // of peers
	place   func(slot int) (url string, before []string)
	members []*member
	left    []*member // asked to end
	count   int
}

// A member is one peer process.
type member struct {
	*load.Process
	asleep bool
	killed bool
}

// start starts n peers and waits until all serve.
func (f *fleet) start(n int) {
	f.members = make([]*member, n)
	f.t.Cleanup(f.destroy)
	for slot := range f.members {
		f.spawn(slot)
	}
	f.await("to serve", func(m *member) <-chan struct{} { return m.Serving }, time.Minute)
}

// await waits until all members have said something.
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
	defer func() { _ = log.Close() }() // the peer has its own
	p := redistest.Sure(load.Start(spec, child.Options{Env: f.env, Before: before, Errors: log}, f.journal.hear))(f.t)
	f.members[slot] = &member{Process: p}
}

func (f *fleet) say(op string, m *member, note string) {
	f.journal.say(event{Op: op, Peer: m.Name, Note: note})
}

// kill kills the peer of a slot, and returns when all that it said was heard.
func (f *fleet) kill(slot int, note string) {
	m := f.members[slot]
	m.killed = true
	f.say(opKill, m, note)
	m.Kill() // or it has ended, which end notices
	<-m.Heard
}

// stop has the peer of a slot stand still.
func (f *fleet) stop(slot int) {
	m := f.members[slot]
	f.say(opStop, m, "")
	_ = m.Signal(syscall.SIGSTOP) // or it has ended, which end notices
	m.asleep = true
}

// resume has the peer of a slot go on, if it stands still.
func (f *fleet) resume(slot int) {
	m := f.members[slot]
	if !m.asleep {
		return
	}
	_ = m.Signal(syscall.SIGCONT) // or it has ended, which end notices
	m.asleep = false
	f.say(opCont, m, "")
}

// serves reports whether a peer has come to serve, so that it hears signals.
func (m *member) serves() bool {
	select {
	case <-m.Serving:
		return true
	default:
		return false
	}
}

// replace asks the peer of a slot, which serves, to end, and has another come at once.
func (f *fleet) replace(slot int) {
	m := f.members[slot]
	f.say(opTerm, m, "")
	_ = m.Signal(syscall.SIGTERM) // or it has ended, which end notices
	f.left = append(f.left, m)
	f.spawn(slot)
}

// quiet has nobody enqueue any more.
func (f *fleet) quiet() {
	for slot := range f.members {
		f.resume(slot)
		_ = f.members[slot].Tell("be calm") // if it is gone, await tells
	}
	f.await("to be calm", func(m *member) <-chan struct{} { return m.Calm }, 2*time.Minute)
}

// end asks all peers to end, waits until they have, and tells which did not end
// as they should. Those that ended amid faults may not have been able to say
// farewell to Redis, which Run then reports; that is no crash.
func (f *fleet) end() (complaints []string) {
	for _, m := range f.members {
		f.say(opTerm, m, "")
		_ = m.Signal(syscall.SIGTERM) // or it has ended
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

// destroy leaves no process behind.
func (f *fleet) destroy() {
	for _, m := range slices.Concat(f.left, f.members) {
		if m != nil {
			m.Kill()
			<-m.Heard
		}
	}
}
