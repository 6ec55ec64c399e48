package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/worqr/worqr/worqrtest"
)

// replicas returns two replicas of the service, and a function that sends a request to one of them.
func replicas(t *testing.T, charge func(context.Context, order, int64) error) (all [2]*service, ask func(replica int, method, path, body string) string) {
	redis, file := worqrtest.Start(t), filepath.Join(t.TempDir(), "orders.db")
	for i := range all {
		ob, err := open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		p := redis.Peer(nil)
		if all[i], err = newService(p.Peer, ob, charge); err != nil {
			t.Fatal(err)
		}
		p.Serve()
	}
	return all, func(replica int, method, path, body string) string {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		w := httptest.NewRecorder()
		all[replica].routes().ServeHTTP(w, r)
		return strings.TrimSpace(w.Body.String())
	}
}

func TestChargeOnce(t *testing.T) {
	charged := make(chan order, 10)
	_, ask := replicas(t, func(_ context.Context, o order, _ int64) error {
		charged <- o
		return nil
	})
	first := ask(0, "POST", "/orders", `{"ID": "7", "Cents": 300}`)
	if again := ask(1, "POST", "/orders", `{"ID": "7", "Cents": 300}`); again != first {
		t.Errorf("%s, and again %s", first, again)
	}
	<-charged
	ask(0, "POST", "/orders", `{"ID": "8"}`)
	if o := <-charged; o.ID != "8" {
		t.Errorf("then charged %s", o.ID)
	}
}

func TestDeclined(t *testing.T) {
	declined := make(chan bool, 1)
	all, ask := replicas(t, func(context.Context, order, int64) error {
		declined <- true
		return errDeclined
	})
	ask(0, "POST", "/orders", `{"ID": "7"}`)
	<-declined
	worqrtest.WaitIdle(t, all[0].orders)
	failed := ask(1, "GET", "/failed", "")
	_, rest, _ := strings.Cut(failed, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if got := ask(1, "POST", "/failed/"+url.PathEscape(id), ""); got != `{"requeued":1}` {
		t.Errorf("%s: %s", failed, got)
	}
}

func TestCancelElsewhere(t *testing.T) {
	started := make(chan bool)
	_, ask := replicas(t, func(ctx context.Context, _ order, _ int64) error {
		started <- true
		<-ctx.Done()
		return context.Cause(ctx)
	})
	key := strings.Split(ask(0, "POST", "/orders", `{"ID": "7"}`), `"`)[3]
	<-started
	for replica, running := range []int{1, 0} {
		if got := ask(replica, "DELETE", "/tasks/"+key, ""); got != fmt.Sprintf(`{"Removed":0,"Running":%d}`, running) {
			t.Error(got)
		}
	}
}
