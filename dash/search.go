package dash

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A group is failed tasks with the same cause.
type group struct {
	ID     string
	Kind   string
	Reason string
	Count  int
	Last   time.Time // when the newest task failed
	First  time.Time // when the oldest task failed
}

const (
	mostGroups   = 200
	mostSearches = 8               // at once; the least recently viewed one ends, if possible one that no open page shows
	kept         = 2 * time.Minute // for paging

	// A search pauses while no page shows it: a browser opens its stream soon, and someone without JavaScript loads
	// the page again. Matching that needs many steps pauses sooner.
	pauses        = 2 * time.Second
	pausesMatch   = 500 * time.Millisecond
	longestSearch = 5 * time.Minute

	searchPatience = 150 * time.Millisecond // of a page that waits for results

	breath = 1_000 // tasks after which a search rests
)

// unwatched is how long no page may show a search before it ends. Tests shorten it.
var unwatched = 10 * time.Second

// A search reads a failed queue, newest first, in the background.
type search struct {
	id, what string // what is the queue and the filter
	begun    time.Time
	end      context.CancelFunc
	stale    bool // older than the last action; protected by the mutex of searches

	mu      sync.Mutex // protects the fields below
	looked  time.Time  // when its results were last viewed
	seen    int
	matched int
	groups  map[string]*group
	others  int // tasks in further groups
	rows    []failedRow
	over    bool
	ended   time.Time
	err     error
}

// A failedRow is a failed task in a list.
type failedRow struct {
	ID      string
	Key     string
	Kind    string
	Error   string
	Payload string
	Link    string
	At      time.Time
	Retries int
	Crashes int
	Worker  string
}

// searches has the searches of all browsers.
type searches struct {
	shows func(id string) bool // whether an open page shows a search

	mu  sync.Mutex // protects all
	all []*search
}

// get returns the search with this id, or a recent one for the same filter, or begins one.
func (s *searches) get(id, what string, begin func(*search)) *search {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.all = slices.DeleteFunc(s.all, func(o *search) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.over && now.Sub(o.looked) > kept
	})
	for _, o := range s.all {
		if o.what == what && (o.id == id || id == "" && !o.stale && o.isNew(now)) {
			return o
		}
	}
	if len(s.all) == mostSearches {
		oldest := slices.MinFunc(s.all, func(a, b *search) int {
			switch x, y := s.shows(a.id), s.shows(b.id); {
			case x && !y: // visitors who keep no page open mustn't end the searches of those who do
				return +1
			case y && !x:
				return -1
			}
			return a.lookedAt().Compare(b.lookedAt())
		})
		oldest.end()
		s.all = slices.DeleteFunc(s.all, func(o *search) bool { return o == oldest })
	}
	n := &search{id: cmp.Or(id, fmt.Sprintf("%x", now.UnixNano())), what: what, begun: now, looked: now, groups: map[string]*group{}}
	s.all = append(s.all, n)
	begin(n)
	return n
}

// isNew reports whether a new page may show this search: it's running, or has just ended. Otherwise each reload
// would begin another one.
func (s *search) isNew(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.over || now.Sub(s.ended) < 2*time.Second
}

// forget makes the next page begin its own search, since an action may have changed the results.
// Pages that show an existing search keep it.
func (s *searches) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.all {
		o.stale = true
	}
}

func (s *search) lookedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// run reads the failed queue, until no one views the search anymore.
func (s *search) run(ctx context.Context, d *dashboard, queue string, f *filter) {
	defer s.end()
	failure := s.look(ctx, d, queue, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.ended, s.err = true, time.Now(), failure
}

func (s *search) look(ctx context.Context, d *dashboard, queue string, f *filter) error {
	n, since := 0, time.Now()
	for t, err := range d.peer.Queue(queue).Failed(ctx) {
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		if n++; n%breath == 0 {
			time.Sleep(min(time.Since(since)/10, 5*time.Millisecond)) // leave time for other clients of Redis
			since = time.Now()
		}
		if err := s.goOn(ctx, d.hub, pauses); err != nil {
			return err
		}
		picked, err := f.picks(d, queue, &t, func() error { return s.goOn(ctx, d.hub, pausesMatch) })
		if err != nil {
			return err
		}
		s.note(d, queue, &t, picked)
	}
	return nil
}

// goOn waits while no page has shown the search for longer than grace. It fails if the search must end.
func (s *search) goOn(ctx context.Context, h *hub, grace time.Duration) error {
	for {
		alone := time.Since(s.lookedAt())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case alone < grace || h.shows(s.id):
			return nil
		case alone > unwatched:
			return errUnwatched
		}
		await(ctx, nil, 50*time.Millisecond)
	}
}

var (
	errLong      = errors.New("the search was stopped after " + span(longestSearch) + "; search for newer tasks, or with a simpler expression")
	errUnwatched = errors.New("the search was stopped because no page was showing it; reload the page")
)

func (s *search) note(d *dashboard, queue string, t *inspect.FailedTask, picked bool) {
	var row failedRow
	if picked && s.wants() {
		row = failedRow{
			ID: t.ID, Key: t.Key, Kind: string(t.Kind), Error: line(t.Error, 120), Payload: line(d.payload(queue, t.Payload, shownInLists), 160),
			Link: taskLink(queue, t.Key, t.Payload), At: t.FailedAt, Retries: t.Retries, Crashes: t.Crashes, Worker: t.WorkerID,
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if !picked {
		return
	}
	s.matched++
	if row.ID != "" {
		s.rows = append(s.rows, row)
	}
	id := groupOf(t)
	g := s.groups[id]
	switch {
	case g == nil && len(s.groups) == mostGroups:
		s.others++
		return
	case g == nil:
		g = &group{ID: id, Kind: string(t.Kind), Reason: cmp.Or(alike(t), "(no text)"), First: t.FailedAt, Last: t.FailedAt}
		s.groups[id] = g
	}
	g.Count++
	if t.FailedAt.Before(g.First) { // tasks that OnFailed will retry aren't in the order of their failures
		g.First = t.FailedAt
	}
	if t.FailedAt.After(g.Last) {
		g.Last = t.FailedAt
	}
}

// wants reports whether there is room for one more row.
func (s *search) wants() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows) < mostRows
}

// A result is what a search has found so far.
type result struct {
	ID      string
	Seen    int
	Matched int
	Groups  []group
	Others  int
	Rows    []failedRow
	Over    bool
	Err     string
	Begun   time.Time
	PerS    float64 // tasks searched per second
}

// Left returns how long the search of total tasks will take, or "" if that's unknown.
func (r result) Left(total int) string {
	if r.PerS == 0 || r.Over || total <= r.Seen {
		return ""
	}
	return span(max(time.Second, time.Duration(float64(total-r.Seen)/r.PerS*float64(time.Second)).Round(time.Second)))
}

// result waits a moment for the end of the search, or for enough rows, and returns what it has found.
func (s *search) result(ctx context.Context, rows int) result {
	for deadline := time.Now().Add(searchPatience); ctx.Err() == nil && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		enough := s.over || len(s.rows) >= rows && time.Since(s.begun) > searchPatience/3
		s.mu.Unlock()
		if enough {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = time.Now()
	r := result{ID: s.id, Seen: s.seen, Matched: s.matched, Others: s.others, Rows: s.rows, Over: s.over, Begun: s.begun}
	if took := time.Since(s.begun).Seconds(); took > 0.1 {
		r.PerS = float64(s.seen) / took
	}
	for _, g := range s.groups {
		r.Groups = append(r.Groups, *g)
	}
	slices.SortFunc(r.Groups, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Reason, b.Reason))
	})
	if s.err != nil {
		r.Err = printable(s.err.Error())
	}
	return r
}
