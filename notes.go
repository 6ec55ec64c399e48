package worqr

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
	"github.com/worqr/worqr/worqrtrace"
)

// Limits of a silence.
const (
	longestSilence = 30 * 24 * time.Hour
	longestReason  = 200
)

// Notes returns what has happened to the fleet within a day and what is silenced, for Judge.
func (p *Peer) Notes(ctx context.Context) (happened []inspect.Happening, silences []inspect.Silence, err error) {
	if p.bad != nil {
		return nil, nil, p.bad
	}
	n, err := store.ReadNotes(ctx, p.reads, p.space)
	return n.Happened, n.Silences, wrap("notes", err)
}

// Silence silences findings of a kind until its end, on one queue or on all, for everybody: they are shown last, and
// don't count. It replaces a silence for the same findings. It fails with ErrInvalid without a reason or an end, and if
// there are 100 silences.
func (p *Peer) Silence(ctx context.Context, s inspect.Silence) error {
	return wrap("silence", p.silence(ctx, s))
}

func (p *Peer) silence(ctx context.Context, s inspect.Silence) error {
	left := time.Until(s.Until)
	known := func(o inspect.Source) bool { return o.Name == string(s.Kind) }
	switch {
	case p.bad != nil:
		return p.bad
	case !slices.Contains(FindingKinds(), s.Kind) && !slices.ContainsFunc(p.sources, known):
		return fmt.Errorf("%w: unknown finding kind %s; see FindingKinds", ErrInvalid, words.Shown(string(s.Kind)))
	case s.Queue != "" && checkName(s.Queue) != nil:
		return checkName(s.Queue)
	case strings.TrimSpace(s.Reason) == "" || len(s.Reason) > longestReason:
		return fmt.Errorf("%w: a silence needs a reason of at most %d bytes", ErrInvalid, longestReason)
	case left <= 0 || left > longestSilence:
		return fmt.Errorf("%w: a silence needs an end within 30 days", ErrInvalid)
	}
	s.By = words.Clip(cmp.Or(s.By, p.opts.Name))
	err := store.Silence(ctx, p.calls, p.space, s)
	if err == store.ErrSilences {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

// Unsilence ends a silence. It reports whether there was one.
func (p *Peer) Unsilence(ctx context.Context, kind inspect.FindingKind, queue string) (found bool, err error) {
	if p.bad != nil {
		return false, p.bad
	}
	found, err = store.Unsilence(ctx, p.calls, p.space, kind, queue)
	return found, wrap("unsilence", err)
}

// Server returns what Redis says about itself. In a cluster, that is one of the nodes. It fails with ErrDenied if the
// Redis user may not run INFO.
func (p *Peer) Server(ctx context.Context) (inspect.ServerStats, error) {
	if p.bad != nil {
		return inspect.ServerStats{}, p.bad
	}
	s, err := store.ServerStats(ctx, p.reads)
	return s, wrap("server", err)
}

// A scribe writes notes of what has happened, for people, on a goroutine that runs only while there are some. If that
// fails, they are missing: the log and the metrics have them, too.
type scribe struct {
	peer *Peer

	mu      sync.Mutex // protects the fields below
	noted   map[inspect.Happening]time.Time
	pending []inspect.Happening
	over    []inspect.Happening // whose notes are to be removed first
	writing chan struct{}       // closed when the goroutine ends; nil if there is none
}

// The scribe notes the same thing again after a minute, and only so many things at a time.
const (
	noteAgain = time.Minute
	mostNoted = 100
)

// note writes a note, unless the same was written lately.
func (s *scribe) note(h inspect.Happening) {
	id, now := inspect.Happening{Kind: h.Kind, Queue: h.Queue, Subject: h.Subject}, time.Now()
	h.Text, h.Subject = h.Text[:min(len(h.Text), longestReason)], words.Clip(h.Subject)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= mostNoted || now.Sub(s.noted[id]) < noteAgain {
		return
	}
	if len(s.noted) >= mostNoted || s.noted == nil {
		s.noted = map[inspect.Happening]time.Time{}
	}
	s.noted[id] = now
	s.pending = append(s.pending, h)
	s.writeLocked()
}

func (s *scribe) writeLocked() {
	if s.writing == nil {
		s.writing = make(chan struct{})
		go s.write(s.writing)
	}
}

func (s *scribe) write(done chan struct{}) {
	defer close(done)
	for {
		s.mu.Lock()
		all, over := s.pending, s.over
		s.pending, s.over = nil, nil
		if len(all)+len(over) == 0 {
			s.writing = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), s.peer.opts.CallTimeout)
		err := store.Happen(ctx, s.peer.calls, s.peer.space, all, over)
		cancel()
		if err != nil {
			s.peer.log.Debug("worqr: noting what has happened", "notes", len(all)+len(over), "err", err)
		}
	}
}

// wait waits until all is written, or ctx ends.
func (s *scribe) wait(ctx context.Context) {
	s.mu.Lock()
	s.writeLocked()
	writing := s.writing
	s.mu.Unlock()
	select {
	case <-writing:
	case <-ctx.Done():
	}
}

// trace returns the functions that note what a peer reports.
func (s *scribe) trace() *worqrtrace.Trace {
	return &worqrtrace.Trace{
		FailedDropped: func(q worqrtrace.Queue) { s.note(inspect.Happening{Kind: "dropped", Queue: q.Queue}) },
		WorkerFailed: func(w worqrtrace.Worker) {
			who, text := cmp.Or(w.Name, w.WorkerID), fmt.Sprintf("worker %s", w.WorkerID)
			if w.Host != "" {
				text = fmt.Sprintf("pid %d on %s, %s", w.PID, words.Shown(w.Host), text)
			}
			if !w.LastHeartbeat.IsZero() {
				text += ", last heartbeat at " + words.Moment(w.LastHeartbeat)
			}
			s.note(inspect.Happening{Kind: "evicted", Subject: who, Count: w.Tasks, Text: fmt.Sprintf("%s; it held %s.", text, words.Counted(w.Tasks, "task"))})
		},
	}
}

// ended notes that schedules have ended.
func (s *scribe) ended(queue string, keys []string) {
	for _, key := range keys {
		s.note(inspect.Happening{Kind: "job-gone", Queue: queue, Subject: words.Clip(key)})
	}
}

// begun removes the note that a schedule has ended.
func (s *scribe) begun(queue, key string) {
	h := inspect.Happening{Kind: "job-gone", Queue: queue, Subject: words.Clip(key)}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.noted, h)
	s.pending = slices.DeleteFunc(s.pending, func(o inspect.Happening) bool { return o == h })
	s.over = append(s.over, h)
	s.writeLocked()
}

// lost notes that Redis has lost writes.
func (s *scribe) lost(queue, sign string) {
	s.note(inspect.Happening{Kind: "lost-writes", Text: sign})
	s.peer.inboxes.Lost(queue, sign)
}
