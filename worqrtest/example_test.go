package worqrtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/worqrtest"
	"github.com/worqr/worqr/worqrtrace"
)

var t *testing.T // of the test that the example shows

func greet(context.Context, *worqr.Task) error { return nil }

func Example() {
	redis := worqrtest.Start(t)
	peer := redis.Peer(nil)
	greetings := peer.Queue("greetings")
	greetings.Handle(greet, nil)
	stop := peer.Serve()
	if err := greetings.Enqueue(t.Context(), []byte("ann")); err != nil {
		t.Fatal(err)
	}
	worqrtest.WaitIdle(t, greetings)
	stop()
	if n := peer.Stats().Finished; n != 1 {
		t.Errorf("finished %d tasks", n)
	}
}

// Tests a nightly task without waiting for the night.
func ExampleVirtual() {
	worqrtest.Virtual(t, func(t *testing.T, redis *worqrtest.Redis) {
		peer := redis.Peer(nil)
		reports := peer.Queue("reports")
		reports.Handle(greet, nil)
		peer.Serve()
		if _, err := reports.Add(t.Context(), worqr.TaskSpec{Payload: []byte("monthly"), At: time.Now().Add(8 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Hour)
		worqrtest.WaitIdle(t, reports)
		if n := peer.Stats().Finished; n != 1 {
			t.Errorf("finished %d reports", n)
		}
	})
}

func ExampleRun() {
	a := worqrtest.Run(t, greet, []byte("ann"), nil)
	if a.Outcome != worqrtrace.Finished {
		t.Errorf("the attempt %s: %s", a.Outcome, a.Error)
	}
}

// Tests which tasks a program adds to its queues.
func ExampleEnqueued() {
	peer := worqrtest.Start(t).Peer(nil)
	signUp := func(ctx context.Context, mails *worqr.Queue) error { return mails.Enqueue(ctx, []byte("welcome")) }
	if err := signUp(t.Context(), peer.Queue("mails")); err != nil {
		t.Fatal(err)
	}
	if all := worqrtest.Payloads(t, peer.Queue("mails")); len(all) != 1 || all[0] != "welcome" {
		t.Errorf("waiting: %q", all)
	}
}
