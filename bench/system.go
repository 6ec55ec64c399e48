package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// A system is a work queue to be measured.
type system interface {
	// producer returns a function that enqueues payloads in one call. Each caller has its own.
	producer(t testing.TB, queue string) func(payloads [][]byte) error
	// work starts one worker on every queue, with a number of handlers on each. Called again, it
	// starts another worker. A worker ends with its process.
	work(t testing.TB, handlers int, handle func(payload []byte))
	// left returns how many tasks wait or run.
	left(t testing.TB) int
}

// An opens opens a system. It works on queues; left is about the first one.
type opens = func(t testing.TB, url string, queues []string) system

// systems are the systems to measure.
var systems = map[string]opens{
	ours:     openWorqr(nil, worqr.HandleOptions{}),
	oneByOne: openWorqr(nil, worqr.HandleOptions{Prefetch: -1}),
	added:    openAdded,
	quiet:    openWorqr(&worqr.Options{NoHistory: true}, worqr.HandleOptions{}),
	theirs:   openAsynq,
	bare:     openFloor,
	scripted: openFloor,
}

const (
	ours     = "worqr"
	oneByOne = "worqr, Prefetch: -1"
	added    = "worqr, Add"
	quiet    = "worqr, NoHistory"
	theirs   = "asynq"
	bare     = "floor"
	scripted = "floor, scripted"
)

// patience limits every wait for something that must happen.
const patience = 4 * time.Minute

var errPatience = errors.New("timed out; check whether the machine is busy or the system is stuck")

// until waits until holds returns true.
func until(t testing.TB, what string, holds func() bool) {
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("wait until %s: %v", what, errPatience)
		}
	}
}

// reaches waits until the counter has reached n.
func reaches(t testing.TB, what string, count *atomic.Int64, n int) {
	until(t, what, func() bool { return count.Load() >= int64(n) })
}

// open opens the system of the job, with its number of queues.
func (j job) open(t testing.TB) *trial {
	s := systems[j.System](t, j.URL, names(max(1, j.Queues)))
	return &trial{TB: t, job: j, system: s, meter: newMeter(t, j.URL)}
}

func names(n int) []string {
	queues := make([]string, n)
	for i := range queues {
		queues[i] = fmt.Sprintf("q%d", i)
	}
	return queues
}

// payloads returns n unique payloads; the first has the given number.
func payloads(first, n, size int) [][]byte {
	all := make([]byte, n*size)
	each := make([][]byte, n)
	for i := range each {
		p := all[i*size : (i+1)*size : (i+1)*size]
		for at := range p {
			p[at] = 'x'
		}
		copy(p, fmt.Sprintf("%010d", first+i))
		each[i] = p
	}
	return each
}

// number returns the number of a payload.
func number(payload []byte) (n int) {
	for _, digit := range payload[:10] {
		n = n*10 + int(digit-'0')
	}
	return n
}
