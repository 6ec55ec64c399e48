package store

import (
	"strconv"
	"strings"

	"github.com/worqr/worqr/internal/keys"
)

// A Grave is a task in a failed queue.
type Grave struct {
	Entry   string // in the failed queue
	Payload []byte
	Kind    Kind
	Reason  string
	Retries int
	Crashes int
	Worker  string // that had it last
	At      int64  // ms of Redis time
	From    string // the entry of its key; "" for the list
	Card    string // "" if it has none
}

// grave decodes what is known of a failed task.
func (d *decoder) grave() Grave {
	return Grave{d.string(), d.bytes(), Kind(d.string()), d.string(), int(d.number()), int(d.number()), d.string(), d.number(), d.string(), ""}
}

// Due returns when the task of a schedule or of Add was to run, in ms of Redis time; 0 for other tasks,
// of which nothing tells it.
func (g *Grave) Due() int64 {
	key := KeyOf(g.From)
	if at, ok := keys.AddedAt(key); ok {
		return at.UnixMilli()
	}
	at := strings.LastIndexByte(key, '@')
	if at < 0 || len(key)-at != len("@1767225600000") { // the scripts write ms
		return 0
	}
	due, _ := strconv.ParseUint(key[at+1:], 10, 63)
	return int64(due)
}
