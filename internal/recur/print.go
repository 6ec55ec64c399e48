package recur

import (
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"slices"
	"sync"
	"time"
)

// Print returns a string that is equal for equal specs, in every process and at any time. It uses
// the schedule's value, if that is plain data, and its times after fixed instants, since its code
// may have changed. Without a value, it uses more instants.
func (s *Spec) Print() string {
	h := sha1.New()
	far, closer := instants()
	if value, plain := valueOf(s.Schedule); plain {
		h.Write(value)
		s.sample(h, far)
	} else {
		s.sample(h, closer)
	}
	write(h, int64(s.Late))
	write(h, int64(len(s.Card)))
	h.Write(s.Card)
	h.Write(s.Payload)
	return hex.EncodeToString(h.Sum(nil))
}

// digest returns a print that also depends on the times.
func digest(print string, times []int64) string {
	h := sha1.New()
	h.Write([]byte(print))
	for _, at := range times {
		write(h, at)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sampled is how many of their next times soonAlike compares.
const sampled = 64

// soonAlike returns the next times of a spec, and whether they equal a job's.
func soonAlike(was *job, now *Spec) (soon []int64, same bool) {
	at := time.Now()
	far := at.AddDate(100, 0, 0)
	before, err := was.spec.Times(at, far, sampled)
	soon, failed := now.Times(at, far, sampled)
	return soon, (err == nil) == (failed == nil) && slices.Equal(before, soon)
}

func write(h hash.Hash, n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	h.Write(b[:])
}

// instants returns the instants at which Print samples a schedule, in order: each hour of a week in
// which clocks change, each day of a year, and each month of several years. closer adds more of
// such weeks and years, each minute of a day and each second of a minute.
var instants = sync.OnceValues(func() (far, closer []time.Time) {
	var all []time.Time
	each := func(from time.Time, n int, step time.Duration) {
		for i := range n {
			all = append(all, from.Add(time.Duration(i)*step))
		}
	}
	inOrder := func() []time.Time {
		slices.SortFunc(all, time.Time.Compare)
		return slices.Clone(slices.Compact(all))
	}
	day := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 0, 0, 0, 0, time.UTC) }
	each(day(2025, 3, 26), 8*24, time.Hour) // in Europe
	each(day(2025, 1, 1), 365, 24*time.Hour)
	for i := range 12 * 12 {
		all = append(all, day(2024, 1+time.Month(i), 1))
	}
	far = inOrder()
	for _, week := range []time.Time{day(2025, 3, 5), day(2025, 10, 22), day(2025, 10, 29)} { // the United States and Europe
		each(week, 8*24, time.Hour)
	}
	each(day(2024, 1, 1), 366, 24*time.Hour)
	each(day(2026, 1, 1), 2*365, 24*time.Hour)
	each(day(2025, 6, 3), 24*60, time.Minute)
	each(day(2025, 6, 3).Add(9*time.Hour), 60, time.Second)
	return far, inOrder()
})

// sample writes the times after the instants. A time that is also after the next instant is
// requested once.
func (s *Spec) sample(h hash.Hash, instants []time.Time) {
	var next time.Time
	for _, at := range instants {
		if next.After(at) {
			continue
		}
		var err error
		if next, err = s.next(at); err != nil {
			write(h, 0) // there is none, or the schedule always fails here
			if err == ErrNever {
				return
			}
			continue
		}
		write(h, next.UnixNano())
	}
}
