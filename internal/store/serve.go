package store

import "github.com/worqr/worqr/internal/redisconn"

// A Backoff is the time between tries.
type Backoff = redisconn.Backoff

// IsRepeatable reports whether Redis hasn't carried out a round that it will carry out soon: replicas are missing, the slot
// is moving, or the scripts were flushed.
func IsRepeatable(err error) bool { return redisconn.Repeatable(err) }

// IsAnswer reports whether an error is a reply of Redis.
func IsAnswer(err error) bool { return redisconn.Answered(err) }

// A Notice is a kind of message to a worker.
type Notice string

// The notices.
const (
	Woken      Notice = "wake"   // a script has woken the worker; AskHeartbeat is the message that asks for a heartbeat
	Work       Notice = "work"   // a producer that only pushes and publishes has added tasks
	IsCanceled Notice = "cancel" // a payload was canceled; the message is the payload
)

// AskHeartbeat is the message of a Woken whose worker is to send a heartbeat, since attempts must stop.
const AskHeartbeat = "0"
