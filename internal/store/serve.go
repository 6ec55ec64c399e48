package store

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// ErrUnknown is the error of a call that was sent and whose reply was lost: it may have
// been carried out.
var ErrUnknown = redisconn.ErrUnknown

// A Backoff is the time between attempts.
type Backoff = redisconn.Backoff

// NewBackoff returns a Backoff for the first attempt.
func NewBackoff() *Backoff { return redisconn.NewBackoff() }

// Twice makes a call that may be repeated, and repeats it once if the reply was lost.
func Twice(call func() error) error {
	err := call()
	if errors.Is(err, ErrUnknown) {
		err = call()
	}
	return err
}

// A View is a worker's view of a queue.
type View struct {
	*Lines
	Name string
	ID   string // the name, or an id of its failed queue
	Keys keys.Queue
	step *Stepper
}

// Serve returns a worker's view of a queue.
func (l *Lines) Serve(name, id string, q keys.Queue) *View {
	return &View{Lines: l, Name: name, ID: id, Keys: q, step: NewStepper(q)}
}

// A Sent is a round in flight.
type Sent struct {
	pending topology.Pending
	round   *Round
}

// Send sends a round on the connection for rounds with the index lane.
func (s *View) Send(lane int, r *Round) Sent {
	return Sent{s.Work[lane].Start(s.step.Call(r)), r}
}

// Done returns a channel that is closed once Wait won't block.
func (s *Sent) Done() <-chan struct{} { return s.pending.Done() }

// IsSent reports whether the round has been sent. If it still waits for rounds of other queues,
// IsSent arranges for a call of f once it has been sent. f must not block, or use the connection.
func (s *Sent) IsSent(f func()) bool { return s.pending.Sent(f) }

// Wait returns the answer. It fails with ErrEvicted if the worker isn't a member of the queue. Call
// it only once.
func (s *Sent) Wait(ctx context.Context) (*Answer, error) {
	return ReadStep(s.pending.Wait(ctx)[0], s.round)
}

// Took returns the time from sending the round until it was answered. It's valid only after Wait
// has returned an answer.
func (s *Sent) Took() time.Duration { return s.pending.Took() }

// Held returns what a worker holds, according to Redis: process → token.
func (s *View) Held(ctx context.Context, worker string) (map[string]int64, error) {
	return Held(ctx, s.Calls, s.Keys, worker)
}

// Leave calls the function Leave, and repeats the call if the reply was lost.
func (s *View) Leave(ctx context.Context, worker string, asked, round int64) (returned int, err error) {
	err = Twice(func() error {
		n, err := Leave(ctx, s.Control, s.Keys, worker, asked, round)
		returned += n
		return err
	})
	return returned, err
}

// A Notice is a message to a worker.
type Notice string

// The notices.
const (
	Woken      Notice = "wake"                  // a script has woken the worker
	Work       Notice = Notice(keys.KindWork)   // a producer that only pushes and publishes has added tasks
	IsCanceled Notice = Notice(keys.KindCancel) // a payload was canceled
)

// Listen notifies a worker of what happens on the queue, until stop is called. It calls synced
// after each gap. Both functions are called on one goroutine, and must not block.
func (s *View) Listen(worker string, told func(n Notice, message []byte), synced func()) (stop func()) {
	wake, work, cancel := s.Keys.Wake(worker), s.Keys.Channel(keys.KindWork), s.Keys.Channel(keys.KindCancel)
	l := &redisconn.Subscription{
		Topics: topics(s.Keys, work, cancel, wake),
		Synced: synced,
		Message: func(channel string, data []byte) {
			if i := slices.Index([]string{wake, work, cancel}, channel); i >= 0 {
				told([]Notice{Woken, Work, IsCanceled}[i], data)
			}
		},
	}
	_ = s.Sub.Add(s.Keys, l) // a closed peer has no worker
	return func() { s.Sub.Remove(l) }
}

// topics returns the channels of a queue. In a cluster, scripts publish sharded messages, and so
// may producers in other languages. But those may publish ordinary ones, too, and scripts do if
// the server has no others.
func topics(q Keys, channels ...string) (all []redisconn.Topic) {
	for _, c := range channels {
		if q.Scattered() {
			all = append(all, redisconn.Topic{Name: c, Sharded: true})
		}
		all = append(all, redisconn.Topic{Name: c})
	}
	return all
}
