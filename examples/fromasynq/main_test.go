package main

import (
	"context"
	"testing"

	"github.com/worqr/worqr/worqrtest"
)

// Tasks of both are handled.
func TestBoth(t *testing.T) {
	sent := make(chan int)
	p, err := open(worqrtest.Start(t).URL(), func(_ context.Context, w welcome) error {
		sent <- w.UserID
		return nil
	})
	if err == nil {
		err = p.enqueueOld(welcome{1})
	}
	if err == nil {
		err = p.enqueue(t.Context(), welcome{2})
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- p.run(ctx) }()
	if sum := <-sent + <-sent; sum != 3 {
		t.Errorf("one was sent twice: %d", sum)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
