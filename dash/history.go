package dash

import (
	"slices"
	"time"

	"github.com/worqr/worqr/inspect"
)

// depicted is how far back charts go.
const depicted = 5 * time.Minute

// A sample has the counts of a queue, or of all, at one moment.
type sample struct {
	At                                  time.Time
	Waiting, Scheduled, Running, Failed int
	starts                              int64 // tokens given out: each start takes one
	oldest                              time.Duration
}

func sampled(at time.Time, s inspect.QueueStats) sample {
	return sample{At: at, Waiting: s.Waiting, Scheduled: s.Scheduled, Running: s.Running, Failed: s.Failed, starts: s.Tokens, oldest: s.Oldest}
}

func (s *sample) add(of sample) {
	s.Waiting += of.Waiting
	s.Scheduled += of.Scheduled
	s.Running += of.Running
	s.Failed += of.Failed
	s.starts += of.starts
	s.oldest = max(s.oldest, of.oldest)
}

func (s sample) tasks() int { return s.Waiting + s.Scheduled + s.Running + s.Failed }

// A history has the samples of the last minutes, oldest first.
type history []sample

// with adds a sample, and drops those that charts no longer show, or that exceed most.
func (h history) with(s sample, most int) history {
	first := max(0, len(h)+1-most)
	for first < len(h) && s.At.Sub(h[first].At) > depicted {
		first++
	}
	return append(h[first:], s) // this overwrites nothing, so snapshots may keep theirs
}

// known returns the samples in which it's known for how long tasks have waited.
func (h history) known() history {
	return slices.DeleteFunc(slices.Clone(h), func(s sample) bool { return s.Waiting > 0 && s.oldest == 0 })
}

// A pace is how fast something happens, per second.
type pace struct {
	Starting float64
	Arriving float64 // new tasks, retries and returned ones
	Known    bool
}

// between returns the pace from one sample to a later one.
func between(from, to sample) pace {
	s := to.At.Sub(from.At).Seconds()
	if s <= 0 {
		return pace{}
	}
	starts := float64(max(0, to.starts-from.starts))
	come := float64(to.Waiting + to.Scheduled - from.Waiting - from.Scheduled)
	return pace{Starting: starts / s, Arriving: max(0, (come+starts)/s), Known: true}
}

// before returns the last sample that is at least d before the end, or else the first one. It's not ok if there
// is only one.
func (h history) before(d time.Duration) (sample, bool) {
	if len(h) < 2 {
		return sample{}, false
	}
	end := h[len(h)-1]
	for i := len(h) - 2; i > 0; i-- {
		if end.At.Sub(h[i].At) >= d {
			return h[i], true
		}
	}
	return h[0], true
}

// pace returns the pace over the last seconds.
func (h history) pace() pace {
	from, ok := h.before(smoothed)
	if !ok {
		return pace{}
	}
	return between(from, h[len(h)-1])
}

// smoothed is the time over which a pace is measured.
const smoothed = 5 * time.Second

// paces returns the paces at each sample except the first.
func (h history) paces() (at []time.Time, all []pace) {
	first := 0
	for i := 1; i < len(h); i++ {
		for first+1 < i && h[i].At.Sub(h[first+1].At) >= smoothed {
			first++
		}
		at, all = append(at, h[i].At), append(all, between(h[first], h[i]))
	}
	return at, all
}

// trend returns what has changed in the last minute, and what was usual before that.
func (h history) trend() (r inspect.Recent, usual inspect.Usual) {
	from, ok := h.before(time.Minute)
	if !ok {
		return r, usual
	}
	end := h[len(h)-1]
	r = inspect.Recent{Over: end.At.Sub(from.At), Waiting: end.Waiting - from.Waiting, Failed: end.Failed - from.Failed, Started: int(max(0, end.starts-from.starts))}
	for i := len(h) - 2; i >= 0 && h[i].starts == end.starts; i-- {
		r.NoStart = end.At.Sub(h[i].At)
	}
	if over := from.At.Sub(h[0].At); over >= time.Minute {
		usual = inspect.Usual{Known: true, Failed: float64(max(0, from.Failed-h[0].Failed)) / over.Minutes()}
	}
	return r, usual
}
