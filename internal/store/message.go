package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

// The kinds of messages.
const (
	Enqueued  = string(keys.KindWork) // by any producer
	Finished  = string(keys.KindDone)
	Canceling = string(keys.KindCancel)
	Deleted   = string(keys.KindDelete)
)

// A Message was published about a queue. For a large payload or result it has the size.
type Message struct {
	Kind     string
	Queue    string
	WorkerID string // of Finished
	Payload  []byte // of Finished and Canceling
	Result   []byte // of Finished; nil if there is none
	Count    int    // of Enqueued

	PayloadSize, ResultSize int
	PayloadDigest           string // of Canceling, if the payload is large
}

// ReadMessage reads a message. Producers in other languages publish too, so it skips what it
// can't read.
func ReadMessage(s Space, channel string, data []byte) (Message, bool) {
	queue, kind, ok := s.ParseChannel(channel)
	m := Message{Queue: queue, Kind: string(kind)}
	var err error
	switch kind {
	case keys.KindWork, keys.KindEnqueue:
		m.Kind = Enqueued
		m.Count, err = strconv.Atoi(strings.TrimSpace(string(data)))
	case keys.KindDone:
		err = m.readDone(data)
	case keys.KindCancel:
		payload, digest, size := ReadCancel(data)
		if m.Payload, m.PayloadSize = payload, size; payload == nil {
			m.PayloadDigest = digest
		}
	case keys.KindDelete:
	default:
		return m, false
	}
	return m, ok && err == nil
}

// readDone reads the message of a finished task. Redis writes the bytes of a
// payload into it unchanged. If they aren't UTF-8, neither is the
// message: then each byte is read as the character with that code point.
func (m *Message) readDone(data []byte) error {
	var of struct {
		WorkerID   string  `json:"workerId"`
		Task       *string `json:"task"`
		TaskSize   int     `json:"taskSize"`
		Result     *string `json:"result"`
		ResultSize int     `json:"resultSize"`
	}
	bytesOf := func(s string) []byte { return []byte(s) }
	if !utf8.Valid(data) {
		var wide bytes.Buffer
		for _, b := range data {
			wide.WriteRune(rune(b))
		}
		data = wide.Bytes()
		bytesOf = func(s string) []byte {
			narrow := make([]byte, 0, len(s))
			for _, r := range s {
				narrow = append(narrow, byte(r))
			}
			return narrow
		}
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return fmt.Errorf("a done message can't be read: %w", err)
	}
	m.WorkerID, m.PayloadSize, m.ResultSize = of.WorkerID, of.TaskSize, of.ResultSize
	if of.Task != nil {
		m.Payload = bytesOf(*of.Task)
		m.PayloadSize = len(m.Payload)
	}
	if of.Result != nil {
		m.Result = bytesOf(*of.Result)
		m.ResultSize = len(m.Result)
	}
	return nil
}

// An Observer receives messages, on one goroutine per cluster node. Its functions must not block.
type Observer struct {
	Message func(m Message)
	Synced  func()                       // subscribed, at first and after every gap
	Failed  func(err error, gist string) // there is a gap, or a channel is refused; the gist stays the same when that repeats
	Closed  func()                       // there will be no more messages
}

// observed are the kinds of messages that observers receive.
var observed = []keys.Kind{keys.KindWork, keys.KindEnqueue, keys.KindDone, keys.KindCancel, keys.KindDelete}

// Observe passes all messages about some queues to an observer, or about all if none
// is given, until stop is called.
func (l *Lines) Observe(s Space, queues []Keys, o Observer) (stop func(), err error) {
	if s.Scattered() {
		return l.watch(s, queues, o)
	}
	of := observing(s, o)
	for _, k := range observed {
		if len(queues) == 0 {
			of.Topics = append(of.Topics, redisconn.Topic{Name: s.Pattern(k), Pattern: true})
		}
		for _, q := range queues {
			of.Topics = append(of.Topics, redisconn.Topic{Name: q.Channel(k)})
		}
	}
	return func() { l.Sub.Remove(of) }, l.Sub.AddAll(of)
}

// observing returns a subscription for an observer, without its topics.
func observing(s Space, o Observer) *redisconn.Subscription {
	return &redisconn.Subscription{
		Synced: o.Synced, Closed: o.Closed,
		Failed: func(err error) {
			gist := logs.Gist(err)
			if refused, ok := errors.AsType[*redisconn.RefusalError](err); ok {
				gist = logs.Gist(refused.Err)
			}
			o.Failed(err, gist)
		},
		Message: func(channel string, data []byte) {
			if m, ok := ReadMessage(s, channel, data); ok {
				o.Message(m)
			}
		},
	}
}
