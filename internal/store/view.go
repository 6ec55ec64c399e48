package store

import (
	"context"
	"math"
	"slices"
	"strings"

	"github.com/gomodule/redigo/redis"

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
	return &View{Lines: l, Shared: SharedOf(q), Name: name, ID: id, Keys: q, lane: l.Rounds.Lane(q)}
}

// Silent reports whether the connection for rounds has received nothing from the queue's server for
// its timeout.
func (s *View) Silent() bool { return s.lane.Silent() }

// A Replied is a round and the replies to it, which aren't decoded yet.
type Replied struct {
	*Round
	view    *View
	replies []redisconn.Reply
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

// A Fetched is the task of an attempt.
type Fetched struct {
	Name   string // "" for a raw task
	Record Record // of a raw task only the payload
}

// Fetch reads the task of an attempt; nil if the attempt has ended, or Redis has lost the task.
func (s *View) Fetch(ctx context.Context, attempt string) (*Fetched, error) {
	list := s.Keys.Process(attempt)
	text, err := readText(s.Calls.One(ctx, redisconn.Command("LINDEX", list, 0)))
	if err != nil || text == nil {
		return nil, err
	}
	if !strings.HasSuffix(attempt, "n") {
		return &Fetched{Record: Record{Payload: text}}, nil
	}
	name := string(text)
	record, err := readText(s.Calls.One(ctx, redisconn.Command("HGET", s.Keys.Tasks(), name)))
	if err != nil || record == nil {
		return nil, err
	}
	// Only now, since the record may be that of another attempt unless this one still has the name.
	held, err := redis.Bool(s.Calls.One(ctx, redisconn.Command("EXISTS", list)))
	if err != nil || !held {
		return nil, err
	}
	return &Fetched{name, ReadRecord(record, s.Keys.IsFailed())}, nil
}

// readText reads a reply that is a string or nothing.
func readText(v any, err error) ([]byte, error) {
	text, err := redis.Bytes(v, err)
	if err == redis.ErrNil {
		return nil, nil
	}
	return text, err
}

// CanceledAt returns the last token when a payload was canceled; negative: it wasn't within the last minute.
func (s *View) CanceledAt(ctx context.Context, payload Digest) (token int64, err error) {
	text, err := readText(s.Calls.One(ctx, redisconn.Command("GET", s.Keys.CanceledBy(payload.String()))))
	if err != nil || text == nil {
		return -1, err
	}
	return numberIn(string(text)), nil
}

// Held returns what a worker holds, according to Redis: attempt → token. An attempt that starts or ends meanwhile may be
// among them or not.
func (s *View) Held(ctx context.Context, worker string) (map[string]int64, error) {
	held := map[string]int64{}
	// In reverse, so that one that is canceled meanwhile, and gets a negative token, comes later, maybe again.
	of := &ranking{by: s.Calls, key: s.Keys.Working(worker), reverse: true}
	for {
		page, err := of.page(ctx)
		if err != nil || len(page) == 0 {
			return held, err
		}
		for _, m := range page {
			held[m.name] = whole(math.Abs(m.score))
		}
	}
}

// Leave ends the worker's membership, and returns all its tasks. It answers how many tasks were returned.
func (s *View) Leave(ctx context.Context, worker string, round int64) (returned int, err error) {
	return Leave(ctx, s.Control, s.Shared, worker, round)
}
