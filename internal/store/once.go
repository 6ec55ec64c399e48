package store

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"time"

	"github.com/worqr/worqr/internal/keys"
)

// Once makes a call add or put its task at most once within a window. The zero value doesn't.
type Once struct {
	ID     string
	Window time.Duration
}

// mark returns the nonce, which no caller of EnqueueOnce is likely to use.
func (o Once) mark() string {
	if o.Window == 0 {
		return ""
	}
	sum := sha1.Sum([]byte(o.ID))
	return "o:" + hex.EncodeToString(sum[:])
}

// markedKey returns the key of the task that a mark names.
func markedKey(mark string) (string, error) {
	if key := KeyOf(mark); key != "" {
		return key, nil
	}
	if key, card, ok := keys.SplitAdded(mark); ok && card == "" {
		return key, nil
	}
	return "", errors.New("the record of Once has been overwritten")
}

// NewSalt returns a salt for the tasks of a call, in part i of n of a spread queue, or 0 of 1.
func NewSalt(i, n int) string { return keys.NewSalt(i, n) }

// NewKey returns a key for a task in part i of n; see NewSalt.
func NewKey(i, n int) string { return keys.NewKey(time.Now(), i, n) }

// AddedPart returns which of n parts has the task with a key, if an added task can have that key.
func AddedPart(key string, n int) (i int, ok bool) { return keys.AddedPart(key, n) }
