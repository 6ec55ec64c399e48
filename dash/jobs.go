package dash

import (
	"context"
	"sync"
	"time"
)

// A job acts on many tasks, in the background.
type job struct {
	verb  Verb
	begun time.Time
	end   context.CancelFunc
	done  chan struct{} // closed at its end

	mu    sync.Mutex // protects the fields below
	n     int        // tasks changed
	seen  int        // tasks looked at
	err   error
	ended time.Time // zero while it runs
}

// A jobState is what pages show of a job.
type jobState struct {
	Verb    Verb
	N, Seen int
	Err     string
	Going   bool
	Begun   time.Time
	Took    time.Duration
}

// jobs has the latest job of each queue.
type jobs struct {
	mu  sync.Mutex // protects all
	all map[string]*job
}

const (
	jobTimeout = time.Hour
	shownAfter = time.Minute // how long its end is shown
)

// start runs a job. It returns nil if a job of the same queue is running.
func (j *jobs) start(verb Verb, queue string, do func(context.Context, *job) error) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	if old := j.all[queue]; old != nil && old.state().Going {
		return nil
	}
	ctx, end := context.WithTimeout(context.Background(), jobTimeout)
	n := &job{verb: verb, begun: time.Now(), end: end, done: make(chan struct{})}
	if j.all == nil {
		j.all = map[string]*job{}
	}
	for name, old := range j.all {
		if s := old.state(); !s.Going && time.Since(s.Begun.Add(s.Took)) > shownAfter {
			delete(j.all, name)
		}
	}
	j.all[queue] = n
	go func() {
		defer end()
		err := do(ctx, n)
		n.mu.Lock()
		n.err, n.ended = err, time.Now()
		n.mu.Unlock()
		close(n.done)
	}()
	return n
}

// of returns the state of a queue's job, or nil if there is none to show.
func (j *jobs) of(queue string) *jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.all[queue]
	if of == nil {
		return nil
	}
	s := of.state()
	if !s.Going && time.Since(s.Begun.Add(s.Took)) > shownAfter {
		return nil
	}
	return &s
}

func (j *jobs) stop(queue string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if of := j.all[queue]; of != nil {
		of.end()
	}
}

func (j *job) state() jobState {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := jobState{Verb: j.verb, N: j.n, Seen: j.seen, Going: j.ended.IsZero(), Begun: j.begun}
	if s.Took = time.Since(j.begun); !s.Going {
		s.Took = j.ended.Sub(j.begun)
	}
	if j.err != nil {
		s.Err = printable(j.err.Error())
	}
	return s
}

func (j *job) add(seen, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen += seen
	j.n += n
}
