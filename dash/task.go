package dash

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

// A found task is what the listings tell of it, beside its explanation.
type found struct {
	Payload  []byte
	Key      string
	Headers  map[string]string
	Enqueued time.Time
	Expires  time.Time
	Error    string // of the last attempt
	Failed   string // its id in the failed queue
}

type taskBody struct {
	Queue    string
	Asked    bool   // a task was named
	What     string // how it was named
	Key      string
	Digest   string
	Sentence []string
	Copies   []worqr.TaskCopy
	Found    *found
	Payload  string
	Hidden   bool
	Headers  []string // their names, sorted
	Err      string
}

func (d *dashboard) task(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	state, err := known(now, query.Get("name"))
	if err != nil {
		return nil, err
	}
	q := d.opts.Queue(state.name)
	body := &taskBody{Queue: state.name, Key: query.Get("key"), Digest: query.Get("digest"), Hidden: d.hides()}
	p := &page{Name: "task", Tab: "overview", Heading: "Task", Query: query, Now: now, Banners: d.banners(now, state.name), Live: []string{"explained"}, Body: body}
	var e *worqr.Explanation
	header, value, _ := strings.Cut(query.Get("header"), ":")
	switch {
	case body.Key != "":
		body.What = "the key " + line(body.Key, 100)
		var both sync.WaitGroup
		both.Go(func() {
			body.Found = d.find(ctx, state.name, func(key string, _ []byte) bool { return key == body.Key })
		})
		e, err = q.ExplainKey(ctx, body.Key)
		both.Wait()
	case header != "":
		body.What = "the header " + line(query.Get("header"), 100)
		e, err = q.ExplainHeader(ctx, strings.TrimSpace(header), strings.TrimSpace(value))
	case body.Digest != "":
		body.What = "this payload"
		if body.Found = d.find(ctx, state.name, func(_ string, payload []byte) bool { return digest(payload) == body.Digest }); body.Found == nil {
			body.Asked, body.Err = true, "The task isn't among the first "+count(mostRows)+" of any list of this queue: it has probably ended. To search for it, give its payload or key."
			return p, nil
		}
		e, err = q.Explain(ctx, body.Found.Payload)
	default:
		return p, nil
	}
	d.explained(body, e, err)
	return p, nil
}

// explained fills in what is known of a task.
func (d *dashboard) explained(body *taskBody, e *worqr.Explanation, err error) {
	body.Asked = true
	if err != nil {
		body.Err = printable(err.Error())
		return
	}
	body.Sentence, body.Copies = strings.Split(printable(e.String()), "\n"), e.Copies
	if f := body.Found; f != nil {
		body.Payload = d.pretty(body.Queue, f.Payload)
		body.Headers = slices.Sorted(maps.Keys(f.Headers))
	}
}

// hides reports whether payloads are hidden, so that there's no use in searching them.
func (d *dashboard) hides() bool {
	return d.opts.Payload != nil && d.opts.Payload("", []byte("payload")) == ""
}

// find looks for a task in the listings, as far as they can be seen.
func (d *dashboard) find(ctx context.Context, queue string, is func(key string, payload []byte) bool) *found {
	ctx, end := context.WithTimeout(ctx, listTime)
	defer end()
	q := d.opts.Queue(queue)
	n := 0
	over := func(err error, most int) bool { n++; return err != nil || n > most }
	for t, err := range q.Running(ctx) {
		if over(err, mostRunning) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Error: printable(t.LastError)}
		}
	}
	n = 0
	for t, err := range q.Scheduled(ctx) {
		if over(err, mostRows) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Expires: t.Expires, Error: printable(t.LastError)}
		}
	}
	n = 0
	for t, err := range q.Added(ctx) {
		if over(err, mostRows) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Expires: t.Expires}
		}
	}
	n = 0
	for t, err := range q.Failed(ctx) {
		if over(err, mostRows) {
			break
		}
		if is(t.Key, t.Payload) {
			return &found{Payload: t.Payload, Key: t.Key, Headers: t.Headers, Enqueued: t.EnqueuedAt, Error: printable(t.Error), Failed: t.ID}
		}
	}
	n = 0
	for payload, err := range q.Tasks(ctx) {
		if over(err, mostRows) {
			break
		}
		if is("", payload) {
			return &found{Payload: payload}
		}
	}
	return nil
}

// lookUp explains a payload that somebody has typed. It's posted, so that it isn't in the URL.
func (d *dashboard) lookUp(w http.ResponseWriter, r *http.Request) {
	form, ok := d.form(w, r)
	if !ok {
		return
	}
	name := form.Get("name")
	if !d.authorized(w, r, Action{Verb: View, Queue: name}) {
		return
	}
	now := d.hub.current(r.Context())
	ctx, end := context.WithTimeout(r.Context(), pageTimeout)
	defer end()
	state, err := known(now, name)
	if err != nil {
		d.refuse(w, r, http.StatusNotFound, err.Error())
		return
	}
	payload := []byte(form.Get("payload"))
	body := &taskBody{Queue: state.name, What: "this payload", Found: &found{Payload: payload}, Digest: digest(payload), Hidden: d.hides()}
	e, err := d.opts.Queue(state.name).Explain(ctx, payload)
	d.explained(body, e, err)
	d.write(w, r, http.StatusOK, &page{Name: "task", Tab: "overview", Heading: "Task", Query: url.Values{"name": {state.name}}, Now: now, Banners: d.banners(now, state.name), Body: body})
}

// mostPosted limits what a browser may send.
const mostPosted = 1 << 20

// form reads what was posted. It refuses what comes from other sites, and what isn't a form.
func (d *dashboard) form(w http.ResponseWriter, r *http.Request) (url.Values, bool) {
	if err := d.cross.Check(r); err != nil {
		d.refuse(w, r, http.StatusForbidden, "This request comes from another site, or through a proxy that changes the host. Options.CrossOrigin says whom to trust.")
		return nil, false
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostPosted))
	if err != nil {
		d.refuse(w, r, http.StatusRequestEntityTooLarge, "The request is too large: a payload may have up to 1 MiB here.")
		return nil, false
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		d.refuse(w, r, http.StatusBadRequest, "The request isn't a form.")
		return nil, false
	}
	for name, values := range form {
		for i := range values {
			values[i] = strings.ReplaceAll(values[i], "\r\n", "\n") // as typed: browsers change it
		}
		form[name] = values
	}
	return form, true
}
