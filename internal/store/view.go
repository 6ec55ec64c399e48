package store

import (
	"slices"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// A View is a worker's view of a queue.
type View struct {
	*Lines
	*Shared
	Name string
	ID   string // the name, or an id of its failed queue
	Keys keys.Queue

	lane *topology.Lane
}

// Serve returns a worker's view of a queue.
func (l *Lines) Serve(name, id string, q keys.Queue) *View {
	return &View{Lines: l, Shared: SharedOf(q), Name: name, ID: id, Keys: q, lane: l.Control.Lane(q)}
}

// Silent reports whether the connection for rounds has received nothing from the queue's server for
// its timeout.
func (s *View) Silent() bool { return s.lane.Silent() }

// A Replied is a round and the replies to it, which aren't decoded yet.
type Replied struct {
	*Round
	view    *View
	replies Replies
}

// Read decodes the replies.
func (r *Replied) Read() Result { return r.Round.Read(r.view.Keys, r.replies) }

// Send sends a round, and doesn't block or wait for answers: see topology.Lane. It calls done once, in the
// order of the Sends, on a goroutine that all queues of the server share, never within Send. done must not
// block, and may call Send. The round must not change until then.
func (s *View) Send(r *Round, done func(*Replied)) {
	s.lane.Send(r.Calls(s.Shared), func(replies []redisconn.Reply) { done(&Replied{r, s, replies}) })
}

// Listen notifies a worker of what happens on the queue, until stop is called. It calls synced
// after each gap. Both functions are called on one goroutine, and must not block.
func (s *View) Listen(worker string, told func(n Notice, message []byte), synced func()) (stop func()) {
	notices := []Notice{Woken, Work, IsCanceled}
	channels := []string{s.Keys.Wake(worker), s.Keys.Channel(keys.KindWork), s.Keys.Channel(keys.KindCancel)}
	l := &redisconn.Subscription{
		Topics: topics(s.Keys, channels...),
		Synced: synced,
		Message: func(channel string, data []byte) {
			if i := slices.Index(channels, channel); i >= 0 {
				told(notices[i], data)
			}
		},
	}
	_ = s.Sub.Add(s.Keys, l) // a closed peer has no worker
	return func() { s.Sub.Remove(l) }
}
