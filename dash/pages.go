package dash

import (
	"bytes"
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A builder collects the content of a page. It fails only if there is no such page.
type builder func(ctx context.Context, now *snapshot, query url.Values) (*page, error)

// A page has the data for its templates.
type page struct {
	Name    string // of its template
	Tab     string // the current one
	Heading string
	Fleet   string // Options.Title
	Actions bool   // actions are allowed
	Query   url.Values
	Now     *snapshot
	Banners []banner
	Note    string // what an action did
	Live    []string
	Stream  string
	Body    any
}

// pageTimeout is how long a page may collect its content, after the snapshot. It then shows what it has.
const pageTimeout = 4 * time.Second

func (d *dashboard) show(w http.ResponseWriter, r *http.Request, name string, build builder) {
	query := r.URL.Query()
	if !d.authorized(w, r, viewed(name, query)) {
		return
	}
	now := d.hub.current(r.Context())
	d.follow(now, false)
	ctx, end := context.WithTimeout(r.Context(), pageTimeout)
	defer end()
	p, err := build(ctx, now, query)
	if err != nil {
		d.refuse(w, http.StatusNotFound, err.Error())
		return
	}
	p.Note = done(query)
	p.Stream = link("stream", "show", cmp.Or(name, "overview")) + "&" + without(query, "did", "n", "show").Encode()
	d.write(w, http.StatusOK, p)
}

func without(query url.Values, names ...string) url.Values {
	rest := url.Values{}
	for name, values := range query {
		if !slices.Contains(names, name) {
			rest[name] = values
		}
	}
	return rest
}

func (d *dashboard) write(w http.ResponseWriter, status int, p *page) {
	var b bytes.Buffer
	p.Fleet, p.Actions = d.opts.Title, d.opts.AllowActions
	if err := templates().ExecuteTemplate(&b, "page", p); err != nil {
		http.Error(w, "the page can't be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that has gone needs no answer
}

// Part renders one block of a page.
func (p *page) Part(name string) (template.HTML, error) {
	var b bytes.Buffer
	if err := templates().ExecuteTemplate(&b, name, p); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil //nolint:gosec // the template has escaped it
}

// blocks renders the parts that change.
func (p *page) blocks() (blocks, error) {
	all := blocks{}
	for _, name := range append(p.Live, "banners") {
		html, err := p.Part(name)
		if err != nil {
			return nil, err
		}
		all[name] = string(html)
	}
	return all, nil
}

// refuse answers with a page that explains what is wrong.
func (d *dashboard) refuse(w http.ResponseWriter, status int, why string) {
	d.write(w, status, &page{Name: "refused", Heading: http.StatusText(status), Body: printable(why), Now: &snapshot{}})
}

// A pager has the links between the pages of a list.
type pager struct {
	From, To, All int
	Before, After string // links; "" if there is none
}

const perPage = 50

// paged returns the rows of the page in a query.
func paged[T any](rows []T, name string, query url.Values) ([]T, pager) {
	last := max(0, (len(rows)-1)/perPage)
	n, _ := strconv.Atoi(query.Get("page"))
	n = min(max(n-1, 0), last)
	p := pager{From: n*perPage + 1, To: min(len(rows), (n+1)*perPage), All: len(rows)}
	to := func(n int) string {
		q := without(query, "did", "n", "page")
		q.Set("page", strconv.Itoa(n+1))
		return cmp.Or(name, "./") + "?" + q.Encode()
	}
	if n > 0 {
		p.Before = to(n - 1)
	}
	if n < last {
		p.After = to(n + 1)
	}
	return rows[n*perPage : p.To], p
}

// pageIn returns the page number of a query, limited to the pages that mostRows fill. Anybody can
// write a link with another number, or without one.
func pageIn(query url.Values) int {
	n, _ := strconv.Atoi(query.Get("page"))
	return min(max(n, 1), mostRows/perPage)
}

// An overviewRow is a queue in the list of all queues.
type overviewRow struct {
	Name    string
	Counts  inspect.QueueStats
	Pace    pace
	Spark   *spark
	Level   string // of its worst banner
	State   string
	Unknown bool // its counts are unknown
}

type overviewBody struct {
	Rows   []overviewRow
	Pager  pager
	Sort   string
	Filter string
	Charts []*chart
	Known  int // queues
}

func (d *dashboard) overview(_ context.Context, now *snapshot, query url.Values) (*page, error) {
	all := d.banners(now, "")
	worst := map[string]banner{}
	for _, b := range slices.Backward(all) { // the worst are first
		for _, name := range b.queues {
			worst[name] = b
		}
	}
	body := &overviewBody{Sort: query.Get("sort"), Filter: query.Get("q"), Known: len(now.queues), Charts: charts(d.hub.history(), now.At)}
	var picked []*queueState
	for _, q := range now.queues {
		if strings.Contains(strings.ToLower(q.name), strings.ToLower(body.Filter)) {
			picked = append(picked, q)
		}
	}
	sortQueues(picked, body.Sort, func(q *queueState) int {
		if b, ok := worst[q.name]; ok && !b.Silenced {
			return slices.Index(inspect.Severities(), b.Severity)
		}
		return len(inspect.Severities())
	})
	picked, body.Pager = paged(picked, "", query)
	for _, q := range picked {
		b := worst[q.name]
		row := overviewRow{Name: q.name, Counts: q.counts, Pace: q.pace, Spark: q.past.sparked(now.At), Level: b.Level, State: b.Title, Unknown: q.at.IsZero() || q.err != nil}
		body.Rows = append(body.Rows, row)
	}
	return &page{Name: "overview", Tab: "overview", Heading: "Overview", Query: query, Now: now, Banners: all, Live: []string{"totals", "charts", "queues", "sources"}, Body: body}, nil
}

// sortQueues sorts by a column, and those with problems first if none is named.
func sortQueues(all []*queueState, by string, level func(*queueState) int) {
	key := map[string]func(*queueState) float64{
		"waiting":   func(q *queueState) float64 { return float64(q.counts.Waiting) },
		"scheduled": func(q *queueState) float64 { return float64(q.counts.Scheduled) },
		"oldest":    func(q *queueState) float64 { return float64(q.counts.Oldest) },
		"started":   func(q *queueState) float64 { return q.pace.Starting },
		"running":   func(q *queueState) float64 { return float64(q.counts.Running) },
		"failed":    func(q *queueState) float64 { return float64(q.counts.Failed) },
		"workers":   func(q *queueState) float64 { return float64(q.counts.Workers) },
	}[by]
	switch {
	case key != nil:
		slices.SortStableFunc(all, func(a, b *queueState) int { return cmp.Compare(key(b), key(a)) })
	case by != "name":
		slices.SortStableFunc(all, func(a, b *queueState) int { return level(a) - level(b) })
	}
}

// A sentence is an error whose text a page shows unchanged.
type sentence string

func (s sentence) Error() string { return string(s) }

// errNoQueue is the answer to an unknown name.
const errNoQueue = sentence("No such queue: nothing was enqueued to it and no worker has served it. Check the name and the prefix.")

// known returns the state of a queue. While Redis can't be reached, any queue may exist.
func known(now *snapshot, name string) (*queueState, error) {
	if q := now.find(name); q != nil {
		return q, nil
	}
	if name == "" || now.err == nil && !now.more {
		return nil, errNoQueue
	}
	return &queueState{name: name}, nil
}
