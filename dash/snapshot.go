package dash

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/reading"
)

// Limits of one snapshot.
const (
	mostQueues  = 10_000 // names
	mostWorkers = 10_000
	mostCounts  = 1_000 // queues whose counts are read; the rest keep theirs until their turn
	atOnce      = 16    // queues read at the same time
	readTimeout = 10 * time.Second

	queueTimeout = 3 * time.Second // of one queue: time for a new connection, and ten round trips of 300 ms
)

var perQueue = reading.Limits{AtOnce: atOnce, Each: queueTimeout}

// A snapshot is the known state of the fleet at one moment. It doesn't change.
type snapshot struct {
	At       time.Time     // when it was read; zero before the first time
	Took     time.Duration // to read it
	queues   []*queueState // by name
	workers  []inspect.Worker
	more     bool      // there are more queues than are listed
	err      error     // why the last attempt to read failed; the rest is older
	unlisted error     // why the workers couldn't be listed
	answered time.Time // when the last queue was read
	Sources  []section // as they are, even if the rest couldn't be read
	Total    sample
	Pace     pace

	Server   inspect.ServerStats
	happened []inspect.Happening
	silences []inspect.Silence
	Unnoted  string // why both couldn't be read, and may be older
}

// A queueState is the known state of one queue.
type queueState struct {
	name     string
	at       time.Time // when its counts were read; zero if they never were
	counts   inspect.QueueStats
	err      error // why they couldn't be read
	past     history
	pace     pace
	workers  []*inspect.Worker // registered ones that serve it
	unlisted bool              // they're from an earlier snapshot
	usual    inspect.Usual     // by its history, if that matters
	missing  time.Duration     // how long it has had more workers than are registered
}

// Workers returns how many are registered.
func (s *snapshot) Workers() int { return len(s.workers) }

func (s *snapshot) find(name string) *queueState {
	i, ok := slices.BinarySearchFunc(s.queues, name, func(q *queueState, name string) int { return strings.Compare(q.name, name) })
	if !ok {
		return nil
	}
	return s.queues[i]
}

func (s *snapshot) worker(id string) *inspect.Worker {
	i := slices.IndexFunc(s.workers, func(w inspect.Worker) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	return &s.workers[i]
}

// A fleet reads snapshots. One goroutine at a time uses it.
type fleet struct {
	peer *worqr.Peer

	past    map[string]history
	all     history
	usual   map[string]usual // by queue
	server  inspect.ServerStats
	asked   time.Time            // when the server was, or may be, asked about itself
	missing map[string]time.Time // queues that have more workers than are registered, and since when
	turn    int                  // of the first queue to read next, if there are too many for one snapshot
}

// read returns the next snapshot. If that fails, it returns the last one with the error.
func (f *fleet) read(ctx context.Context, last *snapshot) *snapshot {
	ctx, end := context.WithTimeout(ctx, readTimeout)
	defer end()
	begun := time.Now()
	var asked sync.WaitGroup
	var sources []section
	asked.Go(func() { sources = sections(ctx, f.peer) })
	happened, silences, unnoted := last.happened, last.silences, ""
	asked.Go(func() {
		if h, s, err := f.peer.Notes(ctx); err == nil {
			happened, silences = h, s
		} else {
			unnoted = printable(err.Error())
		}
		f.askServer(ctx)
	})
	next, err := f.counted(ctx, last, begun)
	took := time.Since(begun)
	asked.Wait()
	if err != nil {
		failed := *last
		failed.err, failed.Took, failed.Sources, failed.Unnoted = err, took, sources, "" // there's a banner
		return &failed
	}
	next.Took, next.Sources, next.happened, next.silences, next.Unnoted, next.Server = took, sources, happened, silences, unnoted, f.server
	if next.answered.After(begun) {
		next.Took = next.answered.Sub(begun) // the next one doesn't need to wait longer for queues that don't answer
	}
	return next
}

// How often the server is asked about itself: rarely if the Redis user may not do that.
const (
	askServer      = 5 * time.Second
	askForbidden   = 10 * time.Minute
	serverPatience = 2 * time.Second
)

func (f *fleet) askServer(ctx context.Context) {
	now := time.Now()
	if now.Before(f.asked) {
		return
	}
	ctx, end := context.WithTimeout(ctx, serverPatience)
	defer end()
	var err error
	f.asked = now.Add(askServer)
	if f.server, err = f.peer.Server(ctx); errors.Is(err, worqr.ErrDenied) {
		f.asked = now.Add(askForbidden)
	}
}

func (f *fleet) counted(ctx context.Context, last *snapshot, now time.Time) (*snapshot, error) {
	next := &snapshot{At: now}
	for name, err := range f.peer.Queues(ctx) {
		if err != nil {
			return nil, err
		}
		if len(next.queues) == mostQueues {
			next.more = true
			break
		}
		next.queues = append(next.queues, &queueState{name: name})
	}
	slices.SortFunc(next.queues, func(a, b *queueState) int { return strings.Compare(a.name, b.name) })
	var listed sync.WaitGroup
	var workers []inspect.Worker
	var unlisted error
	listed.Go(func() { workers, unlisted = f.list(ctx) })
	err := f.count(ctx, next, last)
	listed.Wait()
	switch {
	case err != nil:
		return nil, err
	case unlisted != nil && (len(next.queues) == 0 || errors.Is(unlisted, worqr.ErrDenied)):
		return nil, unlisted
	case unlisted != nil: // some may be registered on a node that is down
		workers = slices.Clone(last.workers)
	}
	next.workers, next.unlisted = workers, unlisted
	f.remember(next)
	serve(next)
	f.miss(next)
	f.compare(ctx, next)
	return next, nil
}

// A usual is what a queue's history says, and when it was read.
type usual struct {
	inspect.Usual
	at time.Time
}

// How often the history of a queue is read, and how many are read for one snapshot.
const (
	historyEvery  = 10 * time.Minute
	mostHistories = 16
)

// compare reads the history of the queues that may have problems, to compare with. What can't be read is read again
// for the next snapshot.
func (f *fleet) compare(ctx context.Context, next *snapshot) {
	ctx, end := context.WithTimeout(ctx, queueTimeout)
	defer end()
	asked := 0
	for _, q := range next.queues {
		recent, _ := q.past.trend()
		c := q.counts
		if q.err != nil || recent.Failed == 0 && (c.IdleWorkers > 0 || c.Waiting == 0 || c.Running == 0) {
			continue
		}
		if now := time.Now(); now.Sub(f.usual[q.name].at) > historyEvery && asked < mostHistories {
			if f.usual == nil || len(f.usual) > mostCounts {
				f.usual = map[string]usual{}
			}
			asked++
			if hours, err := f.peer.Queue(q.name).History(ctx, now.Add(-24*time.Hour), now.Truncate(time.Hour), time.Hour); err == nil {
				f.usual[q.name] = usual{inspect.UsualOf(hours), now}
			}
		}
		q.usual = f.usual[q.name].Usual
	}
}

func (f *fleet) list(ctx context.Context) ([]inspect.Worker, error) {
	ctx, end := context.WithTimeoutCause(ctx, queueTimeout, reading.ErrSlow)
	defer end()
	all, _, err := first(f.peer.Workers(ctx), mostWorkers)
	return all, reading.Cause(ctx, err)
}

func (f *fleet) count(ctx context.Context, next, last *snapshot) error {
	ask := next.queues
	if len(ask) > mostCounts {
		for _, q := range ask {
			if old := last.find(q.name); old != nil {
				*q = queueState{name: q.name, at: old.at, counts: old.counts, err: old.err}
			}
		}
		first := f.turn % len(ask)
		f.turn = first + mostCounts
		ask = slices.Concat(ask[first:], ask[:first])[:mostCounts]
	}
	if len(ask) == 0 {
		return nil
	}
	stats := func(ctx context.Context, i int) (inspect.QueueStats, error) {
		return f.peer.Queue(ask[i].name).Stats(ctx)
	}
	counts, errs, answered := reading.Each(ctx, len(ask), perQueue, stats)
	next.answered = answered
	for i, q := range ask {
		q.counts, q.err, q.at = counts[i], errs[i], next.At
	}
	if slices.ContainsFunc(ask, func(q *queueState) bool { return q.err == nil }) {
		return nil
	}
	if ctx.Err() != nil || f.peer.Ping(ctx) != nil { // the failure isn't about these queues
		return ask[0].err
	}
	return nil
}

// remember adds the counts to the history.
func (f *fleet) remember(next *snapshot) {
	old := f.past
	f.past = make(map[string]history, len(next.queues))
	most := min(300, max(60, 150_000/max(1, len(next.queues))))
	next.Total.At = next.At
	for _, q := range next.queues {
		past := old[q.name]
		if q.at.Equal(next.At) && q.err == nil {
			past = past.with(sampled(q.at, q.counts), most)
		}
		f.past[q.name] = past
		q.past = past
		q.pace = past.pace()
		next.Total.add(sampled(next.At, q.counts))
		next.Pace.Starting += q.pace.Starting
		next.Pace.Known = next.Pace.Known || q.pace.Known
	}
	f.all = f.all.with(next.Total, 300)
}

// serve sets which registered workers serve each queue.
func serve(next *snapshot) {
	slices.SortFunc(next.workers, func(a, b inspect.Worker) int {
		return strings.Compare(a.Name+"\x00"+a.ID, b.Name+"\x00"+b.ID)
	})
	for i := range next.workers {
		for _, name := range next.workers[i].Queues {
			if q := next.find(name); q != nil {
				q.workers = append(q.workers, &next.workers[i])
			}
		}
	}
}

// miss records which queues have workers that no longer renew their registration.
func (f *fleet) miss(next *snapshot) {
	old := f.missing
	f.missing = map[string]time.Time{}
	if next.unlisted != nil {
		for _, q := range next.queues {
			q.unlisted = true
		}
		return
	}
	for _, q := range next.queues {
		if q.err == nil && q.counts.Workers > len(q.workers) {
			since, ok := old[q.name]
			if !ok {
				since = next.At
			}
			f.missing[q.name], q.missing = since, next.At.Sub(since)
		}
	}
}
