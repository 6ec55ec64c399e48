package dash_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A user with access to one queue gets no access to all queues by passing its name.
func TestAuthorizeAll(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p := peertest.OpenDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix})
	peertest.Enqueue(t, p.Queue("mine"), "a")
	peertest.Enqueue(t, p.Queue("others"), "a")
	w := peertest.Open(t, worqr.Options{Prefix: prefix})
	q := peertest.Working(t, w, "others")
	_, err := q.StartTask(t.Context())
	is.NoErr(err)
	b := browse(t, p, &dash.Options{AllowActions: true, Authorize: func(_ *http.Request, a dash.Action) error {
		if a.Queue != "mine" {
			return errors.New("not yours")
		}
		return nil
	}})
	for _, page := range []string{"?name=mine", "overview?name=mine", "workers?name=mine", "server?name=mine"} {
		if r := b.get(page); r.StatusCode != http.StatusForbidden || strings.Contains(r.text, "others") {
			t.Errorf("%s: %s", page, r.Status)
		}
	}
	for _, page := range []string{"stream?show=overview&name=mine", "stream?show=&name=mine"} {
		r, err := http.Get(b.base + page) //nolint:noctx // it answers at once
		is.NoErr(err)
		_ = r.Body.Close() // a stream would not end
		is.Equal(r.StatusCode, http.StatusForbidden)
	}
	is.Equal(b.get("queue?name=mine").StatusCode, http.StatusOK)
	for _, verb := range []string{"fail-worker", "sweep", "check"} {
		is.Equal(b.post("act", "verb", verb, "name", "mine", "worker", w.WorkerID()).StatusCode, http.StatusForbidden)
	}
	is.Equal(b.post("act", "verb", "pause", "name", "mine").StatusCode, http.StatusSeeOther)
	is.Equal(peertest.Stats(t, q).Running, 1)
}

// A stream that begins while the server shuts down doesn't delay it.
func TestShutdownWhileStreamBegins(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	peertest.Enqueue(t, p.Queue("q"), "a")
	entered, leave := make(chan bool, 1), make(chan bool)
	var n atomic.Int32
	h := dash.New(p, &dash.Options{Authorize: func(*http.Request, dash.Action) error {
		if n.Add(1) == 1 {
			entered <- true
			<-leave
		}
		return nil
	}})
	server := httptest.NewServer(h)
	defer server.CloseClientConnections()
	go func() {
		r, err := http.Get(server.URL + "/stream?show=overview")
		if err == nil {
			defer r.Body.Close()
			b := make([]byte, 1000)
			for err == nil {
				_, err = r.Body.Read(b)
			}
		}
	}()
	<-entered
	ctx, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	server.Config.RegisterOnShutdown(func() { close(leave) })
	is.NoErr(server.Config.Shutdown(ctx))
}

// A deeply nested payload takes no longer to show than others.
func TestDeepPayload(t *testing.T) {
	is := parallel(t)
	p := open(t, worqr.Options{})
	q := p.Queue("q")
	const depth = 9_990
	payload := strings.Repeat("[", depth) + strings.Repeat("1,", (64<<10-2*depth)/2-1) + "1" + strings.Repeat("]", depth)
	redistest.Sure(q.Add(t.Context(), worqr.TaskSpec{Key: "k", Payload: []byte(payload)}))(t)
	b := browse(t, p, nil)
	r := b.get("task?name=q&key=k")
	is.Equal(r.StatusCode, http.StatusOK)
	is.True(len(r.text) < 1<<20)
}

// The headers of a stream come at once, and a HEAD request doesn't count as an open page.
func TestStreamHead(t *testing.T) {
	is := parallel(t)
	b := browse(t, open(t, worqr.Options{}), nil)
	c := &http.Client{Timeout: 5 * time.Second}
	for range 3 {
		r, err := c.Head(b.base + "stream?show=overview") //nolint:noctx // the client has a timeout
		is.NoErr(err)
		is.NoErr(r.Body.Close())
		is.Equal(r.StatusCode, http.StatusOK)
	}
}
