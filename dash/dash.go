// Package dash is a dashboard for worqr: an http.Handler that shows a fleet's queues, tasks,
// failures and workers, explains problems and, if you allow it, acts on them.
//
//	mux.Handle("/worqr/", dash.New(peer, nil))
//
// It's read-only unless [Options] allow actions. Mount it behind [BasicAuth], or behind a login of yours, with
// Options.Hosts, or set Options.Authorize. Otherwise it answers only at localhost and IP addresses. The path must
// end in a slash; http.StripPrefix isn't needed.
//
// While no page is open, nothing runs. While one is, one loop in the process reads the counts of
// all queues, and each browser has one stream of events. The pages work without JavaScript.
package dash

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// Options configure a dashboard. A zero field means the default.
//
// A function that panics, calls runtime.Goexit or blocks breaks nothing else: Authorize then refuses, and the payload
// is shown as "(cannot be shown)". Authorize and User may take ten seconds, Payload two. The log has such failures,
// with the stack of a panic.
type Options struct {
	// Title names the fleet at the top of each page; "" is "worqr".
	Title string
	// AllowActions shows the buttons and lets them act. Otherwise the dashboard is read-only.
	AllowActions bool
	// Authorize, if set, decides about each request. It gets [View] before a page is shown, and the
	// action before it's done. If it returns an error, the response is the error's text with status
	// 403. It must be safe for concurrent use.
	Authorize func(*http.Request, Action) error
	// Hosts lists the host names at which browsers open the dashboard, besides localhost, names that end in
	// .localhost, and IP addresses; it refuses others with status 421. Case and ports don't count. "*" allows all, for
	// a dashboard behind your own login. If Hosts is empty, and Authorize is set or BasicAuth let the request through, all are allowed.
	Hosts []string
	// User returns the user's name, for the log; nil takes it from basic authentication.
	User func(*http.Request) string
	// Payload returns the text of a payload, which pages show and search; "" hides it. Nil shows
	// text unchanged, and other bytes as a dump. HidePayloads hides all. It must be safe for
	// concurrent use, and not change the payload.
	Payload func(queue string, payload []byte) string
	// Logger gets a line for each action; nil is slog.Default. Payloads and keys aren't logged.
	Logger *slog.Logger
	// Interval is how often the counts are read while a page is open; 0 is a second. If reading takes
	// long, they're read less often.
	Interval time.Duration
	// Check has the limits for findings.
	Check *inspect.CheckOptions
	// CrossOrigin refuses actions that come from other sites; nil trusts only the dashboard's own.
	CrossOrigin *http.CrossOriginProtection
}

// HidePayloads is an Options.Payload that hides all payloads.
func HidePayloads(string, []byte) string { return "" }

// A Verb is the kind of an Action.
type Verb string

const (
	View            Verb = "view"
	Check           Verb = "check" // look for damage and risks; allowed in a read-only dashboard
	Enqueue         Verb = "enqueue"
	Pause           Verb = "pause"
	Resume          Verb = "resume"
	Drain           Verb = "drain"            // pause, and count what still runs until nothing does
	Cancel          Verb = "cancel"           // a payload, or the tasks under a key
	Delete          Verb = "delete"           // the waiting tasks of a queue
	Requeue         Verb = "requeue"          // some failed tasks
	RequeueMatching Verb = "requeue-matching" // those that a search finds, or all
	Discard         Verb = "discard"          // some failed tasks
	DiscardMatching Verb = "discard-matching" // those that a search finds, or all
	Stop            Verb = "stop"             // a RequeueMatching or DiscardMatching that is running
	RunNow          Verb = "run-now"          // a recurring task, once, in addition to its schedule
	Return          Verb = "return"           // a running task, with all others of its worker
	FailWorker      Verb = "fail-worker"
	Sweep           Verb = "sweep"
	Silence         Verb = "silence" // findings of a kind, for a while
	Unsilence       Verb = "unsilence"
)

// These pages and actions concern all queues, even if a request names one.
var (
	pagesOfAll = []string{"", "overview", "workers", "server"}
	verbsOfAll = []Verb{Check, FailWorker, Sweep}
)

// An Action is what a request wants to do.
type Action struct {
	Verb   Verb
	Queue  string // "" if it concerns all queues: the overview, Workers, Server, FailWorker, Sweep and Check
	Worker string // of FailWorker and Return
}

// A dashboard is the handler.
type dashboard struct {
	peer    *worqr.Peer
	opts    Options
	hooks   *hooks
	log     *slog.Logger
	cross   *http.CrossOriginProtection
	hub     *hub
	finds   *searches
	recur   *recurrences
	jobs    *jobs
	check   *checkup
	judged  judged
	pasts   sync.Map // charts by queue and span
	pages   map[string]builder
	servers servers
	assets  map[string]*asset
}

// New returns a dashboard of the peer's fleet. It does no I/O; the peer doesn't need to be started.
// Pages answer even while Redis doesn't. opts may be nil.
func New(peer *worqr.Peer, opts *Options) http.Handler {
	if peer == nil {
		panic("dash: peer is nil")
	}
	d := &dashboard{peer: peer}
	if opts != nil {
		d.opts = *opts
	}
	d.opts.Title = cmp.Or(d.opts.Title, "worqr")
	d.opts.Interval = max(cmp.Or(d.opts.Interval, time.Second), 100*time.Millisecond)
	d.log = cmp.Or(d.opts.Logger, slog.Default())
	d.cross = cmp.Or(d.opts.CrossOrigin, http.NewCrossOriginProtection())
	d.hooks = &hooks{opts: &d.opts, log: d.log, patience: hookPatience, partPatience: partPatience, told: map[string]time.Time{}, calls: map[string]calls{}}
	d.check = &checkup{check: func(ctx context.Context) (*inspect.CheckReport, error) {
		return peer.Check(ctx, d.opts.Check)
	}}
	d.hub = &hub{fleet: fleet{peer: peer}, interval: d.opts.Interval, seen: func(s *snapshot) { d.follow(s, false) }}
	d.finds = &searches{shows: d.hub.shows}
	d.recur = &recurrences{peer: peer}
	d.jobs = &jobs{}
	d.pages = map[string]builder{
		"": d.overview, "overview": d.overview, "queue": d.queue, "failed": d.failed, "task": d.task, "recurring": d.recurring, "workers": d.workers, "server": d.server,
	}
	d.assets = assets()
	return d
}

// ServeHTTP finds the page by the last element of the path, so links are relative, and the
// dashboard doesn't need to know where it's mounted.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server := d.servers.running(r)
	secure(w.Header())
	if !d.opts.answers(r) {
		http.Error(w, errHost, http.StatusMisdirectedRequest)
		return
	}
	dir, name := path.Split(r.URL.Path)
	if a := d.assets[name]; a != nil {
		a.serve(w, r)
		return
	}
	build := d.pages[name]
	switch {
	case name == "act" && r.Method == http.MethodPost:
		d.act(w, r)
	case name == "task" && r.Method == http.MethodPost:
		d.lookUp(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		d.refuse(w, http.StatusMethodNotAllowed, "This page can only be read.")
	case name == "stream":
		d.stream(w, r, server)
	case name == "" && dir == "": // a prefix without its slash was stripped
		at, _, _ := strings.Cut(r.RequestURI, "?")
		redirect(w, path.Base(at)+"/")
	case build == nil:
		d.refuse(w, http.StatusNotFound, "There's no such page.")
	default:
		d.show(w, r, name, build)
	}
}

// secure sets the headers that keep a browser from doing more than it should.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// redirect sends a browser to a sibling of this page. http.Redirect would need to know the prefix.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

func viewed(page string, query url.Values) Action {
	a := Action{Verb: View}
	if !slices.Contains(pagesOfAll, page) {
		a.Queue = query.Get("name")
	}
	return a
}

func asked(form url.Values) Action {
	a := Action{Verb: Verb(form.Get("verb")), Worker: form.Get("worker")}
	if !slices.Contains(verbsOfAll, a.Verb) {
		a.Queue = form.Get("name")
	}
	return a
}

// authorized calls the hook. If the hook refuses, it answers the request.
func (d *dashboard) authorized(w http.ResponseWriter, r *http.Request, a Action) bool {
	err := d.hooks.authorize(r, a)
	if err != nil {
		d.refuse(w, http.StatusForbidden, err.Error())
	}
	return err == nil
}
