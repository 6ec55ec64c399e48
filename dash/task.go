package dash

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

type taskBody struct {
	Queue    string
	Asked    bool // a task was named
	Key      string
	Digest   string
	Sentence string // if there are no copies
	Copies   []copied
	Names    map[string]string // of the workers that ran attempts
	Found    *found
	Payload  string
	Title    string // the payload as in lists
	Hidden   bool
	Headers  []string // their names, sorted
	Error    string   // of the last attempt, unless a copy has it
	Err      string
}

func (d *dashboard) task(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	state, err := known(now, query.Get("name"))
	if err != nil {
		return nil, err
	}
	body := &taskBody{Queue: state.name, Key: query.Get("key"), Digest: query.Get("digest"), Hidden: d.hides()}
	p := &page{Name: "task", Tab: "overview", Heading: "Task", Query: query, Now: now, Banners: d.banners(now, state.name), Live: []string{"explained", "task-acts"}, Body: body}
	q := d.peer.Queue(state.name)
	var e *inspect.Explanation
	header, value, _ := strings.Cut(query.Get("header"), ":")
	switch {
	case body.Key != "":
		if e, err = q.Explain(ctx, worqr.Query{Key: body.Key}); err == nil && len(e.Copies) > 0 {
			var in []inspect.CopyState
			for _, c := range e.Copies {
				in = append(in, c.State)
			}
			body.Found, _ = d.glance(ctx, state.name, in, func(key string, _ []byte) bool { return key == body.Key })
		}
	case header != "":
		e, err = q.Explain(ctx, worqr.Query{Header: strings.TrimSpace(header), Value: strings.TrimSpace(value)})
	case body.Digest != "":
		body.Found, err = d.glance(ctx, state.name, anywhere, func(_ string, payload []byte) bool { return digest(payload) == body.Digest })
		switch {
		case body.Found != nil:
			e, err = q.Explain(ctx, worqr.Query{Payload: body.Found.Payload})
		case errors.Is(err, context.DeadlineExceeded):
			body.Asked, body.Err = true, "Reading the lists of this queue takes too long. To search for the task, enter its payload or key."
			return p, nil
		case err == nil:
			body.Asked, body.Err = true, "The task isn't among the first "+words.Grouped(mostRows)+" of any list of this queue: it has probably ended. To search for it, enter its payload or key."
			return p, nil
		}
	default:
		return p, nil
	}
	d.explained(body, now, e, err)
	return p, nil
}

// CanCancel reports whether a copy waits or runs.
func (b *taskBody) CanCancel() bool {
	return slices.ContainsFunc(b.Copies, func(c copied) bool { return c.State != inspect.CopyFailed })
}

// explained sets the fields for an explanation.
func (d *dashboard) explained(body *taskBody, now *snapshot, e *inspect.Explanation, err error) {
	body.Asked, body.Names = true, map[string]string{}
	if err != nil {
		body.Err = printable(err.Error())
		return
	}
	if len(e.Copies) == 0 {
		body.Sentence = printable(e.String())
	}
	if body.Found != nil {
		body.Error = body.Found.Error
	}
	for _, c := range e.Copies {
		if line(c.AttemptID, 64) != c.AttemptID { // another program has written it, and no task runs under it
			c.AttemptID = ""
		}
		if w := now.worker(c.WorkerID); w != nil && c.WorkerName == "" {
			c.WorkerName = w.Name
		}
		for _, a := range c.Attempts {
			if w := now.worker(a.WorkerID); w != nil {
				body.Names[a.WorkerID] = w.Name
			}
		}
		body.Copies = append(body.Copies, copied{c, summary(e, &c)})
		if c.Error != "" {
			body.Error = ""
		}
	}
	if f := body.Found; f != nil {
		body.Payload, body.Title = d.pretty(body.Queue, f.Payload), d.payload(body.Queue, f.Payload, shownInLists)
		body.Headers = slices.Sorted(maps.Keys(f.Headers))
	}
}

// hides reports whether payloads are hidden, so that searching them is useless.
func (d *dashboard) hides() bool {
	return d.opts.Payload != nil && d.hooks.payload("", []byte("payload")) == ""
}

// lookUp explains a typed payload. It's posted, so that it isn't in the URL.
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
		d.refuse(w, http.StatusNotFound, err.Error())
		return
	}
	payload := []byte(form.Get("payload"))
	body := &taskBody{Queue: state.name, Found: &found{Payload: payload}, Digest: digest(payload), Hidden: d.hides()}
	e, err := d.peer.Queue(state.name).Explain(ctx, worqr.Query{Payload: payload})
	d.explained(body, now, e, err)
	d.write(w, http.StatusOK, &page{Name: "task", Tab: "overview", Heading: "Task", Query: url.Values{"name": {state.name}}, Now: now, Banners: d.banners(now, state.name), Body: body})
}
