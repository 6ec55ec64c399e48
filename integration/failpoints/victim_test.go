package failpoints_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

// A config says what the victim does.
type config struct {
	URL, Prefix, Scenario string
	Handling              string // instead of a scenario
	Place                 place
	Times                 int // how often the call is held
	Lease                 time.Duration
}

// A report is a line that the victim writes.
type report struct {
	What     string            // ready, reached, result, between, ended, holding, proved, left; begun, over, draining
	Worker   string            // its id
	Payload  string            `json:",omitempty"` // for begun and over
	Lost     int64             `json:",omitempty"` // for left: its Stats.TakenOver
	Result   string            `json:",omitempty"` // for result: the kind of the error
	Err      string            `json:",omitempty"` // for result: its text
	Commands []command         `json:",omitempty"` // for reached: what is held
	Ends     map[string]string `json:",omitempty"` // for ended: payload → what the caller got
}

// A victim is the peer to which the fault happens.
type victim struct {
	peer  *worqr.Peer
	queue *worqr.Queue
	ctx   context.Context
	gate  *gate
	tasks []*worqr.Task // started by hand
	lines chan string   // commands from the test
	mu    sync.Mutex    // held while a report is written
}

// play is the main function of the victim.
func play(c config) {
	v := &victim{ctx: context.Background(), lines: make(chan string, 10)}
	v.gate = &gate{verdict: make(chan bool, 1), over: make(chan struct{}), reached: func(commands []command) {
		v.say(report{What: "reached", Commands: commands})
	}}
	go v.listen()
	opts := &worqr.Options{Prefix: c.Prefix, Lease: c.Lease, Logger: v.log()}
	i := slices.IndexFunc(handlings, func(h *handling) bool { return h.name == c.Handling })
	if i >= 0 && handlings[i].hasty {
		opts.Drain = -1
	}
	v.peer = worqr.New(v.gate.pool(c.URL, c.Prefix), opts)
	v.queue = v.peer.Queue("q")
	if i >= 0 {
		v.handle(handlings[i], c.Place)
	}
	s := find(c.Scenario)
	if s.ready != nil {
		check(s.ready(v))
	}
	v.say(report{What: "ready"})
	v.await("go")
	v.gate.arm(s.wire, c.Place, 0, c.Times)
	err := s.call(v)
	text := ""
	if err != nil {
		text = err.Error()
	}
	v.say(report{What: "result", Result: kind(err), Err: text})
	v.await("end")
	v.say(report{What: "ended", Ends: v.end()})
	v.await("prove")
	v.prove()
	v.say(report{What: "proved"})
	v.await("leave")
	check(v.peer.Close())
	v.say(report{What: "left"})
	v.await("exit")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (v *victim) say(r report) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.peer != nil {
		r.Worker = v.peer.WorkerID()
	}
	_ = json.NewEncoder(os.Stdout).Encode(r) // fails if the test has gone
}

// listen reads the test's commands, and ends the process when the test ends.
func (v *victim) listen() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		switch line := lines.Text(); line {
		case "on", "cut":
			v.gate.verdict <- line == "on"
		default:
			v.lines <- line
		}
	}
	os.Exit(0)
}

func (v *victim) await(line string) {
	if got := <-v.lines; got != line {
		panic(fmt.Sprintf("told to %q instead of %q", got, line))
	}
}

// end finishes the tasks that the victim holds, even those that it no longer owns.
func (v *victim) end() map[string]string {
	ends := map[string]string{}
	for i, t := range v.tasks {
		if i == 1 {
			v.say(report{What: "between"})
			v.await("more")
		}
		ends[string(t.Payload)] = kind(t.Finish(v.ctx))
	}
	return ends
}

// prove runs one task, as a healthy peer does. It retries calls that are refused because the peer
// was evicted.
func (v *victim) prove() {
	for {
		err := cmp.Or(v.peer.StartWorker(v.ctx), v.queue.StartWork(v.ctx))
		if err == nil {
			var t *worqr.Task
			if t, err = v.queue.StartTask(v.ctx); err == nil {
				if string(t.Payload) != proof {
					panic("it was given " + string(t.Payload))
				}
				v.say(report{What: "holding"})
				v.await("finish")
				check(t.Finish(v.ctx))
				return
			}
		}
		if !errors.Is(err, worqr.ErrEvicted) && !errors.Is(err, worqr.ErrNotWorking) {
			panic(err)
		}
		time.Sleep(5 * time.Millisecond) // between tries
	}
}

// proof is the payload of the task with which a victim proves that it is healthy.
const proof = "proof"

// kind returns what an error means for its caller.
func kind(err error) string {
	var kinds []string
	for _, k := range []struct {
		err  error
		name string
	}{
		{worqr.ErrNotOwner, "lost"}, {worqr.ErrEvicted, "evicted"}, {worqr.ErrUnknownOutcome, "unknown"},
		{worqr.ErrDuplicate, "duplicate"}, {worqr.ErrNotWorking, "not working"}, {worqr.ErrNoTask, "no task"},
	} {
		if errors.Is(err, k.err) {
			kinds = append(kinds, k.name)
		}
	}
	switch {
	case err == nil:
		return "ok"
	case len(kinds) == 0:
		return err.Error()
	}
	return strings.Join(kinds, " ")
}
