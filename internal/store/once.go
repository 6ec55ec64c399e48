package store

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"
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

// markedKey returns the key of the task that a mark names; "" if it is unique.
func markedKey(mark string) (string, error) {
	if key := KeyOf(mark); key != "" || strings.HasPrefix(mark, uniqueMark) {
		return key, nil
	}
	if key, card, ok := keys.SplitAdded(mark); ok && card == "" {
		return key, nil
	}
	return "", errors.New("the record of Once has been overwritten")
}

// NewSalt returns a salt for the tasks of a call.
func NewSalt() string { return keys.NewSalt() }

// NewKey returns a key in the form of an added task's.
func NewKey() string { return keys.NewKey(time.Now()) }
