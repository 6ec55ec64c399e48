package dash

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// blocks are the parts of a page that change, as HTML, by id.
type blocks map[string]string

// How long sending to a browser may take, the longest time between two messages, which may be
// comments, and how long a stream lasts before the browser has to reconnect.
const (
	sendTimeout   = 10 * time.Second
	keepAlive     = 15 * time.Second
	longestStream = 30 * time.Minute
)

// stream sends the changes of a page to a browser, as server-sent events.
func (d *dashboard) stream(w http.ResponseWriter, r *http.Request, server context.Context) {
	name := r.URL.Query().Get("show")
	query := without(r.URL.Query(), "show")
	build := d.pages[name]
	if build == nil {
		d.refuse(w, http.StatusNotFound, "There's no such page.")
		return
	}
	if !d.authorized(w, r, viewed(name, query)) {
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer events
	if r.Method == http.MethodHead {
		return // otherwise the client would wait for the end of the stream
	}
	ctx, end := context.WithTimeout(r.Context(), longestStream)
	defer end()
	watch := &watcher{visitor: d.watching(r), end: end, search: query.Get("search"), page: name + "?" + query.Encode(), told: make(chan blocks, 1)}
	watch.make = func(ctx context.Context, now *snapshot) (blocks, error) {
		p, err := build(ctx, now, without(query)) // a copy, since pages change it
		if err != nil {
			return nil, err
		}
		p.Actions = d.opts.AllowActions
		return p.blocks()
	}
	if !d.hub.watch(watch) {
		h.Set("Retry-After", "60")
		http.Error(w, "too many pages are open; reload this one to see what's new", http.StatusServiceUnavailable)
		return
	}
	defer d.hub.leave(watch)
	forget := context.AfterFunc(server, end)
	defer forget()
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

// watching returns who opens a stream. Nobody has checked the name in basic authentication, so it doesn't count.
func (d *dashboard) watching(r *http.Request) string {
	if d.opts.User != nil {
		return d.hooks.user(r)
	}
	return address(r)
}

// A sender writes events to one browser.
type sender struct {
	w   http.ResponseWriter
	to  *http.ResponseController
	has blocks // what the browser has
}

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

// servers has a context for each server whose requests arrive here. It ends when the server begins to shut down:
// http.Server.Shutdown waits for streams, so they end then.
type servers struct {
	mu sync.Mutex
	of map[*http.Server]context.Context // protected by mu
}

// running returns the context of a request's server. Each request calls it first: a stream that hasn't been
// authorized yet when the server shuts down must end, too.
func (s *servers) running(r *http.Request) context.Context {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok {
		return context.Background()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	running := s.of[server]
	if running == nil {
		var end context.CancelFunc
		running, end = context.WithCancel(context.Background())
		server.RegisterOnShutdown(end)
		if s.of == nil {
			s.of = map[*http.Server]context.Context{}
		}
		s.of[server] = running
	}
	return running
}
