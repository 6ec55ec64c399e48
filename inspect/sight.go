package inspect

import (
	"fmt"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/words"
)

// A Sight is what a look at a fleet has seen, for worqr.Judge. The zero value of a field means that it isn't known.
type Sight struct {
	At       time.Time
	Err      error // why Redis can't be read; then the rest is older
	Unlisted error // why not all workers could be listed
	Unnoted  error // why the notes can't be read
	Queues   []QueueSight
	Workers  []Worker
	Server   ServerStats
	Happened []Happening
	Silences []Silence
	Limits   CheckOptions
}

// A QueueSight is what was seen of one queue.
type QueueSight struct {
	Name string
	Err  error // why it can't be read
	QueueStats
	Recent  Recent
	Usual   Usual
	Missing time.Duration // how long it has had more workers than are registered
}

// Recent is what has changed on a queue since an earlier look.
type Recent struct {
	Over            time.Duration // since then; 0: there was none
	Waiting, Failed int           // how many more there are
	Started         int           // attempts
	NoStart         time.Duration // for how long, as far as known, nothing has started
}

// Usual is what is usual for a queue, by its history.
type Usual struct {
	Known   bool
	Failed  float64       // tasks that fail for good in a minute
	RunTime time.Duration // of a long run; 0: unknown
}

// ServerStats is what Redis says about itself, as Peer.Server returns it.
type ServerStats struct {
	Version    string
	UsedMemory int64  // bytes
	MaxMemory  int64  // bytes; 0: no limit
	Policy     string // maxmemory-policy
	AppendOnly bool   // it has an append-only file
	Clients    int
	Replicas   int
	StartedAt  time.Time     // by this machine's clock
	SavedAt    time.Time     // by Redis's clock: of the last snapshot; StartedAt if there was none
	OpsASecond int           // commands
	RoundTrip  time.Duration // of the question
}

// A Happening is something that has happened within the last day, that the keys don't show anymore.
type Happening struct {
	Kind    FindingKind // "evicted", "job-gone", "dropped" or "lost-writes"
	At      time.Time   // by Redis's clock; the last time
	Queue   string
	Subject string // the worker's name, or the key of a recurring task
	Text    string
	Count   int
}

// A Silence silences findings of a kind until its end.
type Silence struct {
	Kind   FindingKind
	Queue  string // "" is all queues, and findings about none
	Reason string // at most 200 bytes
	By     string // "" is Options.Name
	Since  time.Time
	Until  time.Time // at most 30 days ahead
}

// Silences reports whether the silence is about a finding.
func (s *Silence) Silences(f *Finding) bool {
	return s.Kind == f.Kind && (s.Queue == "" || s.Queue == queueOf(f.Queue))
}

func (s *Silence) sentence() string {
	return fmt.Sprintf("Silenced by %s until %s: %s.", words.Shown(s.By), words.Moment(s.Until), words.Shown(s.Reason))
}

// What a history must have to say what's usual: so many hours, and runs.
const (
	enoughHours = 6
	enoughRuns  = 100
)

// UsualOf returns what is usual for a queue, by the hours of its history before the current one: see Queue.History.
func UsualOf(hours []Period) (u Usual) {
	var failed []int64
	var ran Histogram
	for i := range hours {
		if !hours[i].Recorded {
			continue
		}
		failed = append(failed, hours[i].Failed)
		for j, n := range hours[i].Ran {
			ran[j] += n
		}
	}
	if len(failed) >= enoughHours {
		slices.Sort(failed)
		u.Known, u.Failed = true, float64(failed[len(failed)/2])/60
	}
	if ran.Count() >= enoughRuns {
		u.RunTime = ran.Quantile(0.99)
	}
	return u
}
