package recur

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"time"
)

// fewest is how many times Redis gets, at least, and how many a print is made of.
const fewest = 10

// print returns a string that is equal for specs with the same payload, properties and next times after
// an instant, in every process. It begins with the instant.
func (s *Spec) print(after time.Time, times []int64) string {
	h := sha1.New()
	times = times[:min(len(times), fewest)]
	for _, n := range append([]int64{int64(s.Late), int64(len(s.Card)), int64(len(times))}, times...) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	h.Write(s.Card)
	h.Write(s.Payload)
	return strconv.FormatInt(after.UnixMilli(), 10) + ":" + hex.EncodeToString(h.Sum(nil))
}

// alike reports whether two specs have equal prints after an instant. If one has no print, they differ.
func alike(a, b Spec, after time.Time) bool {
	was, _ := a.plan(after, time.Time{})
	now, _ := b.plan(after, time.Time{})
	return was.print != "" && was.print == now.print
}
