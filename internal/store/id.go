package store

import (
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/google/uuid"
)

// NewID returns a UUIDv7.
func NewID() string { return uuid.Must(uuid.NewV7()).String() }

// NewIDs returns n UUIDv7 in ascending order. Only the first is random; the others count up from
// it, which is method 2 of RFC 9562, section 6.2.
func NewIDs(n int) []string {
	if n == 0 {
		return nil
	}
	const length, tail = 36, 1<<62 - 1 // without the bits of the variant
	id := uuid.Must(uuid.NewV7())
	count := binary.BigEndian.Uint64(id[8:])
	text := make([]byte, 0, n*length)
	for i := range uint64(n) {
		binary.BigEndian.PutUint64(id[8:], count&^tail|(count+i)&tail)
		for _, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
			if len(text)%length != 0 {
				text = append(text, '-')
			}
			text = hex.AppendEncode(text, part)
		}
	}
	ids, all := make([]string, n), string(text)
	for i := range ids {
		ids[i] = all[i*length : (i+1)*length]
	}
	return ids
}

// StartedAt returns the start time in a process's id, or zero if it has none.
func StartedAt(process string) time.Time {
	id, err := uuid.Parse(process)
	if err != nil {
		return time.Time{}
	}
	sec, nsec := id.Time().UnixTime()
	if t := time.Unix(sec, nsec); t.UnixMilli() <= lastMoment {
		return t
	}
	return time.Time{}
}

// lastMoment is the end of the year 9999, in ms: JSON has no later times.
const lastMoment = 253402300799999

// Moment converts a Redis time in ms. The result is zero if the time isn't known. Another program may
// have written any number.
func Moment(ms int64) time.Time {
	if ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(min(ms, lastMoment))
}
