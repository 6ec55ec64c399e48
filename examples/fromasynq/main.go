// Command fromasynq moves the task "mail:welcome" from asynq to worqr without a pause. Both serve
// the same function while producers change over, one deploy at a time.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"

	"github.com/worqr/worqr"
)

type welcome struct{ UserID int }

// errGone is a permanent error: the user was deleted.
var errGone = errors.New("no such user")

// A program serves both. Its own work, send, depends on neither.
type program struct {
	send   func(context.Context, welcome) error
	server *asynq.Server
	client *asynq.Client
	peer   *worqr.Peer
	mails  *worqr.Queue
}

func open(url string, send func(context.Context, welcome) error) (*program, error) {
	redis, err := asynq.ParseRedisURI(url)
	if err != nil {
		return nil, err
	}
	peer, err := worqr.Open(url, &worqr.Options{Prefix: os.Getenv("WORQR_PREFIX")})
	if err != nil {
		return nil, err
	}
	p := &program{send: send, client: asynq.NewClient(redis), peer: peer, mails: peer.Queue("mails")}
	p.server = asynq.NewServer(redis, asynq.Config{Concurrency: 10, LogLevel: asynq.WarnLevel})

	// worqr: a queue for each type of task, or Mux for several types in one queue.
	p.mails.Handle(worqr.JSON(func(ctx context.Context, w welcome, t *worqr.Task) error {
		err := send(ctx, w)
		if errors.Is(err, errGone) {
			return worqr.Permanent(err)
		}
		return err
	}), &worqr.HandleOptions{Concurrency: 10, MaxRetries: 5, Timeout: time.Minute})
	return p, nil
}

// old is the handler for asynq.
func (p *program) old(ctx context.Context, t *asynq.Task) error {
	var w welcome
	if err := json.Unmarshal(t.Payload(), &w); err != nil {
		return fmt.Errorf("decode: %w: %w", err, asynq.SkipRetry)
	}
	err := p.send(ctx, w)
	if errors.Is(err, errGone) {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return err
}

// run serves until ctx ends. Remove asynq once its queues are empty.
func (p *program) run(ctx context.Context) error {
	mux := asynq.NewServeMux()
	mux.HandleFunc("mail:welcome", p.old)
	if err := p.server.Start(mux); err != nil {
		return err
	}
	err := p.peer.Run(ctx)
	p.server.Shutdown()
	return errors.Join(err, p.client.Close(), p.peer.Close())
}

// enqueueOld and enqueue are the producer's calls, before and after.
func (p *program) enqueueOld(w welcome) error {
	payload, err := json.Marshal(w)
	if err != nil {
		return err
	}
	_, err = p.client.Enqueue(asynq.NewTask("mail:welcome", payload), asynq.MaxRetry(5), asynq.Timeout(time.Minute))
	return err
}

func (p *program) enqueue(ctx context.Context, w welcome) error {
	payload, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return p.mails.Enqueue(ctx, payload)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	p, err := open(cmp.Or(os.Getenv("REDIS_URL"), "redis://localhost:6379"), func(_ context.Context, w welcome) error {
		fmt.Println("welcome", w.UserID)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(p.enqueueOld(welcome{1}), p.enqueue(ctx, welcome{2})); err != nil {
		log.Fatal(err)
	}
	if err := p.run(ctx); err != nil {
		log.Fatal(err)
	}
}
