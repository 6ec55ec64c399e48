package dash

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/causes"
)

// A filter picks failed tasks.
type filter struct {
	kind    string
	reason  *regexp.Regexp // of their error; nil is any
	payload *regexp.Regexp // of their payload as it's shown
	group   string         // the id of a group; "" is any
	key     string
}

// filtered makes a filter of a query or a form. It's never nil.
func filtered(query url.Values) (*filter, error) {
	f := &filter{kind: query.Get("kind"), group: query.Get("group"), key: query.Get("key")}
	for name, of := range map[string]**regexp.Regexp{"reason": &f.reason, "payload": &f.payload} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		if len(text) > 200 {
			return f, fmt.Errorf("the expression for the %s is longer than 200 bytes", name)
		}
		expression, err := regexp.Compile("(?i)" + text)
		if err != nil {
			return f, fmt.Errorf("the expression for the %s isn't valid: %s", name, strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		*of = expression
	}
	return f, nil
}

// any reports whether the filter picks all tasks.
func (f *filter) any() bool { return *f == filter{} }

func (f *filter) picks(d *dashboard, queue string, t *worqr.FailedTask) bool {
	return (f.kind == "" || f.kind == string(t.Kind)) && (f.key == "" || f.key == t.Key) &&
		(f.reason == nil || f.reason.MatchString(t.Error)) &&
		(f.group == "" || f.group == groupOf(t)) &&
		(f.payload == nil || f.payload.MatchString(d.payload(queue, t.Payload, shownPayload)))
}

// alike is an error without what differs between those that have the same cause.
func alike(err string) string { return line(causes.Of(err), 140) }

// groupOf is the id of a task's group: the same kind, and errors that are alike.
func groupOf(t *worqr.FailedTask) string {
	sum := sha256.Sum256([]byte(string(t.Kind) + "\x00" + alike(t.Error)))
	return hex.EncodeToString(sum[:6])
}

// A group is failed tasks with the same cause.
type group struct {
	ID     string
	Kind   string
	Reason string
	Count  int
	Last   time.Time // when the newest failed
	First  time.Time // when the oldest did
}

const (
	mostGroups   = 200
	mostSearches = 8                // at once; the one that nobody has looked at for longest ends
	unwatched    = 10 * time.Second // after which a search ends
	kept         = 2 * time.Minute  // for paging

	searchPatience = 150 * time.Millisecond // of a page
)

// A search goes through a failed queue, newest first, in the background.
type search struct {
	id, what string // what: queue and filter
	begun    time.Time
	end      context.CancelFunc

	mu      sync.Mutex // protects what follows
	looked  time.Time  // at its results, last
	seen    int
	matched int
	groups  map[string]*group
	others  int // tasks whose groups are too many
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

// searches are those of all browsers.
type searches struct {
	mu  sync.Mutex // protects all
	all []*search
}

// get returns the search with this id, or one for the same that is still new, or begins one.
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
		if o.what == what && (o.id == id || id == "" && now.Sub(o.begun) < 2*time.Second) {
			return o
		}
	}
	if len(s.all) == mostSearches {
		oldest := slices.MinFunc(s.all, func(a, b *search) int { return a.lookedAt().Compare(b.lookedAt()) })
		oldest.end()
		s.all = slices.DeleteFunc(s.all, func(o *search) bool { return o == oldest })
	}
	n := &search{id: fmt.Sprintf("%x", now.UnixNano()), what: what, begun: now, looked: now, groups: map[string]*group{}}
	s.all = append(s.all, n)
	begin(n)
	return n
}

func (s *search) lookedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looked
}

// run goes through the failed queue, until nobody looks any more.
func (s *search) run(ctx context.Context, d *dashboard, queue string, f *filter) {
	defer s.end()
	n, since := 0, time.Now()
	var failure error
	for t, err := range d.opts.Queue(queue).Failed(ctx) {
		if failure = err; err != nil {
			break
		}
		if n++; n%200 == 0 {
			if time.Since(s.lookedAt()) > unwatched {
				failure = errUnwatched
				break
			}
			time.Sleep(min(time.Since(since), 50*time.Millisecond)) // others need Redis, too
			since = time.Now()
		}
		s.note(d, queue, &t, f.picks(d, queue, &t))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.ended, s.err = true, time.Now(), failure
}

var errUnwatched = fmt.Errorf("the search stopped because nobody was watching; reload the page")

func (s *search) note(d *dashboard, queue string, t *worqr.FailedTask, picked bool) {
	var row failedRow
	if picked && s.wants() {
		row = failedRow{
			ID: t.ID, Key: t.Key, Kind: string(t.Kind), Error: line(t.Error, 300), Payload: line(d.payload(queue, t.Payload, shownInLists), 160),
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
		g = &group{ID: id, Kind: string(t.Kind), Reason: cmp.Or(alike(t.Error), "(no text)"), Last: t.FailedAt}
		s.groups[id] = g
	}
	g.Count++
	g.First = t.FailedAt
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
}

// result waits a moment for the end of the search, or for enough rows, and returns what there is.
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
	for _, g := range s.groups {
		r.Groups = append(r.Groups, *g)
	}
	slices.SortFunc(r.Groups, func(a, b group) int { return cmp.Or(cmp.Compare(b.Count, a.Count), compare(a.Reason, b.Reason)) })
	if s.err != nil {
		r.Err = printable(s.err.Error())
	}
	return r
}

type failedQueue struct {
	Name  string
	Count int
	Grown int
	Over  time.Duration
}

type failedBody struct {
	Queue  string        // "" if none was chosen
	Queues []failedQueue // those that have failed tasks, if none was chosen
	Pager  pager
	Total  int
	Result result
	Rows   []failedRow
	Bad    string // what is wrong with the filter
	Any    bool   // nothing is filtered
	Hidden bool
	Job    *jobState
	Kinds  []worqr.FailureKind
	Group  string // what is alike in the chosen group
}

func (d *dashboard) failed(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	if query.Get("name") == "" {
		return d.failedQueues(now, query), nil
	}
	state, err := known(now, query.Get("name"))
	if err != nil {
		return nil, err
	}
	name := state.name
	body := &failedBody{Queue: name, Total: state.counts.Failed, Hidden: d.hides(), Job: d.jobs.of(name),
		Kinds: []worqr.FailureKind{worqr.FailureError, worqr.FailureMalformed, worqr.FailureExpired, worqr.FailureCrashed}}
	f, err := filtered(query)
	body.Any = f.any()
	p := &page{Name: "failed", Tab: "failed", Heading: "Failed", Query: query, Now: now, Banners: d.banners(now, name),
		Live: []string{"failed-totals", "groups", "failed-rows", "job"}, Body: body}
	if err != nil {
		body.Bad = printable(err.Error())
		return p, nil
	}
	what := without(query, "page", "did", "n", "search").Encode()
	s := d.finds.get(query.Get("search"), what, func(s *search) {
		var ctx context.Context
		ctx, s.end = context.WithCancel(context.Background())
		go s.run(ctx, d, name, f)
	})
	n, _ := strconv.Atoi(query.Get("page"))
	body.Result = s.result(ctx, max(1, n)*perPage)
	query.Set("search", body.Result.ID) // so that further pages, and the stream, are of the same
	body.Rows, body.Pager = paged(body.Result.Rows, "failed", query)
	for _, g := range body.Result.Groups {
		if g.ID == f.group {
			body.Group = g.Reason
		}
	}
	return p, nil
}

// failedQueues lists the queues that have failed tasks.
func (d *dashboard) failedQueues(now *snapshot, query url.Values) *page {
	body := &failedBody{}
	for _, q := range now.queues {
		if n := q.counts.Failed; n > 0 {
			body.Queues = append(body.Queues, failedQueue{q.name, n, q.grown.failed, q.grown.over})
			body.Total += n
		}
	}
	slices.SortStableFunc(body.Queues, func(a, b failedQueue) int { return b.Count - a.Count })
	body.Queues, body.Pager = paged(body.Queues, "failed", query)
	return &page{Name: "failed-queues", Tab: "failed", Heading: "Failed", Query: query, Now: now, Banners: d.banners(now, ""), Live: []string{"failed-queues-rows"}, Body: body}
}
