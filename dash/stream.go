package dash

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// blocks are the parts of a page that change, as HTML, by id.
type blocks map[string]string

// How long a browser may take to receive, how often it hears from us at least, and how long a stream
// lasts. The browser connects again.
const (
	sendTimeout   = 10 * time.Second
	keepAlive     = 15 * time.Second
	longestStream = 30 * time.Minute
)

// stream sends a browser what changes on its page, as server-sent events.
func (d *dashboard) stream(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("show")
	query := without(r.URL.Query(), "show")
	build := d.pages[name]
	if build == nil {
		d.refuse(w, r, http.StatusNotFound, "There's no such page.")
		return
	}
	if !d.authorized(w, r, Action{Verb: View, Queue: query.Get("name")}) {
		return
	}
	watch := &watcher{page: name + "?" + query.Encode(), told: make(chan blocks, 1), make: func(ctx context.Context, now *snapshot) (blocks, error) {
		p, err := build(ctx, now, without(query)) // a copy: pages note in it what they show
		if err != nil {
			return nil, err
		}
		p.Actions = d.opts.AllowActions
		return p.blocks()
	}}
	if !d.hub.watch(watch) {
		w.Header().Set("Retry-After", "60")
		http.Error(w, "too many pages are open; reload this one to see what's new", http.StatusServiceUnavailable)
		return
	}
	defer d.hub.leave(watch)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // or nginx would collect them
	ctx, end := context.WithTimeout(r.Context(), longestStream)
	defer end()
	defer atShutdown(r, end)()
	s := &sender{w: w, to: http.NewResponseController(w), has: blocks{}}
	if s.send("retry: 2000\n\n") != nil {
		return
	}
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case b := <-watch.told:
			err = s.tell(b)
		case <-idle.C:
			err = s.send(": still here\n\n")
		}
		if err != nil {
			return
		}
	}
}

// A sender writes events to one browser.
type sender struct {
	w   http.ResponseWriter
	to  *http.ResponseController
	has blocks // what the browser has
}

// tell sends the blocks that have changed.
func (s *sender) tell(all blocks) error {
	changed := blocks{}
	for id, html := range all {
		if s.has[id] != html {
			changed[id] = html
		}
	}
	s.has = all
	text, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	return s.send(fmt.Sprintf("data: %s\n\n", text))
}

func (s *sender) send(text string) error {
	// The server's WriteTimeout would cut the stream. Not all writers have deadlines.
	_ = s.to.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.to.Flush()
}

// stopping are the streams of each server. http.Server.Shutdown waits for them, so they end with it.
var stopping = struct {
	sync.Mutex
	of map[*http.Server]map[*context.CancelFunc]bool
}{of: map[*http.Server]map[*context.CancelFunc]bool{}}

// atShutdown calls end when the server of a request shuts down, until forget is called.
func atShutdown(r *http.Request, end context.CancelFunc) (forget func()) {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return func() {}
	}
	stopping.Lock()
	defer stopping.Unlock()
	streams := stopping.of[server]
	if streams == nil {
		streams = map[*context.CancelFunc]bool{}
		stopping.of[server] = streams
		server.RegisterOnShutdown(func() {
			stopping.Lock()
			all := slices.Collect(maps.Keys(stopping.of[server]))
			delete(stopping.of, server)
			stopping.Unlock()
			for _, end := range all {
				(*end)()
			}
		})
	}
	streams[&end] = true
	return func() {
		stopping.Lock()
		defer stopping.Unlock()
		delete(streams, &end)
	}
}
