package api

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redistest"
)

// Of what a dead worker holds it is told when that will be over, or that nobody is
// there to see to it.
func TestExplainDead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	prefix := redistest.Prefix(t)
	c := childConfig{URL: redistest.URL(), Prefix: prefix, Queue: "q", Lease: 500 * time.Millisecond, Concurrency: 1, Hold: true}
	child := spawn(t, c)
	q := open(t, worqr.Options{Prefix: prefix, Lease: c.Lease}).Queue("q")
	enqueue(t, q, "a")
	child.starts(1)
	child.kill()
	var e *worqr.Explanation
	eventually(t, "the lease has lapsed", func() bool {
		var err error
		e, err = q.Explain(t.Context(), []byte("a"))
		is.NoErr(err)
		return !slices.Equal(told(e), []string{"running"})
	})
	is.Equal(told(e), []string{"running lease-expired no-worker"})
	is.True(e.Copies[0].EvictAt.IsZero())

	looked := time.Now()
	working(t, open(t, worqr.Options{Prefix: prefix, Lease: c.Lease}), "q")
	e, err := q.Explain(t.Context(), []byte("a"))
	is.NoErr(err)
	if got := told(e); slices.Equal(got, []string{"running lease-expired"}) { // else it was returned meanwhile
		is.True(e.Copies[0].EvictAt.After(looked))
		is.True(strings.Contains(e.String(), "it's evicted at about"))
	}
	eventually(t, "it waits again", func() bool {
		e, err = q.Explain(t.Context(), []byte("a"))
		is.NoErr(err)
		return slices.Equal(told(e), []string{"waiting busy"})
	})
}

// A killed process: its tasks go to the front, in the order in which they had
// started, and nobody else is disturbed.
func TestKilledPeer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 10, Hold: true, Lease: time.Second}
	q := open(t, worqr.Options{Prefix: c.Prefix}).Queue("q")
	tasks, theirs, behind := numbers("", 10), numbers("theirs", 6), numbers("behind", 4)

	victim := spawn(t, c)
	enqueue(t, q, tasks...)
	is.Equal(sorted(victim.starts(10)), tasks)
	c.Concurrency = 3
	one, two := spawn(t, c), spawn(t, c)
	enqueue(t, q, append(theirs, behind...)...)
	is.Equal(sorted(append(one.starts(3), two.starts(3)...)), theirs)

	victim.kill()
	want := append(slices.Clone(tasks), behind...)
	eventually(t, "the tasks are back", func() bool { return len(waiting(t, q)) == len(want) })
	is.Equal(waiting(t, q), want)
	is.Equal(len(one.reports)+len(two.reports), 0) // undisturbed

	_, err := fmt.Fprintln(one.in, "finish")
	is.NoErr(err)
	for started := 0; started < 11; { // now it finishes whatever it takes
		if r := receive(t, one.reports, 1)[0]; r.What == "start" {
			is.Equal(r.Payload != "", true)
			started++
		} else {
			is.Equal(r.Err, "nil")
		}
	}
}

// Three processes, one is killed that holds ten tasks: all ten run elsewhere, the first
// started first, before the others have made many beats. How long that takes is for the
// bench to measure; a busy machine beats late.
func TestKilledPeerRecoversInTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := redistest.Start(t)
	c := childConfig{URL: server.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 10, Hold: true}
	q := openAt(t, server.URL(), worqr.Options{Prefix: c.Prefix}).Queue("q")
	beats := func() int { return redistest.Calls(t, redistest.Dial(t, server.URL()), "pexpire") } // each renews a registration
	tasks := numbers("", 10)
	victim := spawn(t, c)
	enqueue(t, q, tasks...)
	is.Equal(sorted(victim.starts(10)), tasks)
	c.Concurrency = 1
	one, two := spawn(t, c), spawn(t, c)

	// At once: the others have not been there for long.
	victim.kill()
	died, before := time.Now(), beats()
	first := make(chan report, 20)
	for _, p := range []*process{one, two} {
		go func() { first <- <-p.reports }()
	}
	for _, r := range receive(t, first, 2) {
		is.True(r.Payload == "0" || r.Payload == "1")
		t.Logf("a task of the killed peer ran again after %v", r.At.Sub(died))
	}
	// Four or five each are usual. Where the machine stands still for two beats, three more are
	// needed before anybody may judge.
	if n := beats() - before; n > 20 {
		t.Errorf("the others made %d heartbeats meanwhile", n)
	}
	is.Equal(waiting(t, q), tasks[2:])
}

// A paused process: what it does late is refused, its handlers' contexts end,
// and it is back at work by itself, under a new id.
func TestPausedPeer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 3, Hold: true}
	q := open(t, worqr.Options{Prefix: c.Prefix}).Queue("q")
	zombie := spawn(t, c)
	enqueue(t, q, "a", "b", "c")
	zombie.starts(3)
	other := spawn(t, c)

	zombie.signal(syscall.SIGSTOP)
	awake := time.After(10 * time.Second)
	is.Equal(sorted(other.starts(3)), []string{"a", "b", "c"}) // taken over
	old := ""
	for w, err := range open(t, worqr.Options{Prefix: c.Prefix}).Workers(t.Context()) {
		is.NoErr(err)
		old += w.ID + " "
	}
	_, err := fmt.Fprintln(zombie.in, "finish") // it will see this before anything else
	is.NoErr(err)
	<-awake
	zombie.signal(syscall.SIGCONT)
	for range 3 {
		switch r := receive(t, zombie.reports, 1)[0]; r.What {
		case "finished":
			is.Equal(r.Err, "lost")
		case "end":
			is.Equal(r.Err, worqr.ErrEvicted.Error())
		default:
			t.Fatalf("unexpected: %+v", r)
		}
	}
	enqueue(t, q, "d") // the other one is full
	r := zombie.next("start")
	is.Equal(r.Payload, "d")
	is.True(!strings.Contains(old, r.Worker)) // a new id
}

// Sweep, for fleets of which nobody is left.
func TestSweep(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := childConfig{URL: redistest.URL(), Prefix: redistest.Prefix(t), Queue: "q", Concurrency: 2, Hold: true, Lease: 300 * time.Millisecond}
	victim := spawn(t, c)
	p := open(t, worqr.Options{Prefix: c.Prefix, Lease: c.Lease})
	q := p.Queue("q")
	enqueue(t, q, "a", "b", "c")
	victim.starts(2)
	failed, err := p.Sweep(t.Context())
	is.NoErr(err)
	is.Equal(len(failed), 0) // it lives
	victim.kill()
	eventually(t, "it is swept", func() bool {
		failed, err := p.Sweep(t.Context())
		is.NoErr(err)
		return len(failed) == 1
	})
	is.Equal(waiting(t, q), []string{"a", "b", "c"})
	nothingLeftBut(t, c.Prefix, "q", ":queues:{q}", ":ledger:{q}") // that a worker died holding a and b
}
