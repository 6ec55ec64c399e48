package main

import (
	"context"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/worqr/worqr"
)

// docs/recipes.md shows this test. It is in this module because of the in-memory Redis.
func TestGreetings(t *testing.T) {
	redis := miniredis.RunT(t) // in memory, for this test only
	peer, err := worqr.Open("redis://"+redis.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	greetings, sent := peer.Queue("greetings"), make(chan string, 1)
	greetings.Handle(worqr.JSON(func(ctx context.Context, name string, t *worqr.Task) error {
		sent <- "hello " + name
		return nil
	}), nil)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- peer.Run(ctx) }()

	if err := greetings.Enqueue(ctx, []byte(`"ann"`)); err != nil {
		t.Fatal(err)
	}
	if got := <-sent; got != "hello ann" {
		t.Errorf("sent %q", got)
	}
	stop()
	if err := <-ran; err != nil { // Run has drained: the task is finished
		t.Error(err)
	}
	if n := peer.Stats().Finished; n != 1 {
		t.Errorf("finished %d tasks", n)
	}
}
