package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/alecthomas/kong"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/reading"
)

// A target selects the fleet that a command works with.
type target struct {
	Redis  string     `env:"REDIS_URL" default:"redis://localhost:6379" placeholder:"URL" help:"Redis of the fleet; the default is redis://localhost:6379. If the URL has a password, pass it in $$REDIS_URL: other users of the machine can see command-line arguments."`
	Prefix prefixName `env:"WORQR_PREFIX" default:"worqr" help:"Prefix of the fleet's keys."`
	Lease  period     `placeholder:"DURATION" help:"Lease of the fleet's peers; the default is 3s."`
}

// operator returns who runs this command, for those who see a pause; "", which is the host and the process, if that's
// unknown.
func operator() string {
	who, err := user.Current()
	host, noHost := os.Hostname()
	if err != nil || noHost != nil {
		return ""
	}
	return who.Username + "@" + host
}

// A fleet is a connection to a target, by a peer that isn't started, and so isn't a member.
type fleet struct {
	*worqr.Peer
	prefix prefixName
}

func (t *target) fleet() (*fleet, error) {
	t.Prefix = cmp.Or(t.Prefix, "worqr") // an empty $WORQR_PREFIX is none
	o := &worqr.Options{Prefix: string(t.Prefix), Lease: time.Duration(t.Lease), Name: operator()}
	p, err := worqr.Open(t.Redis, o)
	if err != nil {
		return nil, err
	}
	return &fleet{p, t.Prefix}, nil
}

// An onQueue has the flags and arguments of a command about one queue.
type onQueue struct {
	target
	form
	Queue queueName `arg:"" help:"Name of the queue."`
}

// ProvideQueue is called by kong if Run takes the queue. It fails if the queue doesn't exist.
func (c *onQueue) ProvideQueue(ctx context.Context, f *fleet) (*worqr.Queue, error) {
	return f.known(ctx, c.Queue)
}

// An onNamed has those of a command that changes several queues.
type onNamed struct {
	target
	form
	Queues queueNames `arg:"" name:"queue" help:"Names of the queues."`
}

// An onQueues has those of a command that shows several queues.
type onQueues struct {
	target
	form
	Queues queueNames `arg:"" optional:"" name:"queue" help:"Queues to show; by default all."`
}

// ProvideNames is called by kong if Run takes names: those given, which must exist, or else all.
func (c *onQueues) ProvideNames(ctx context.Context, f *fleet) (queueNames, error) {
	return f.names(ctx, c.Queues)
}

// perform runs a command. If it has a target, its Run may take the fleet, which is closed at the end.
func perform(command *kong.Context) error {
	if c, ok := command.Selected().Target.Addr().Interface().(interface{ fleet() (*fleet, error) }); ok {
		f, err := c.fleet()
		if err != nil {
			return err
		}
		defer f.close()
		command.Bind(f)
	}
	return command.Run()
}

// closing is how long a command waits for its last calls: after Ctrl-C, Redis may not have answered
// one. The process ends anyway.
const closing = 200 * time.Millisecond

func (f *fleet) close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = f.Close() // it is not started, so there is nothing to leave
	}()
	select {
	case <-closed:
	case <-time.After(closing):
	}
}

// known returns the handle of a queue. It fails if there is no such queue: it has no keys in Redis, and isn't listed.
func (f *fleet) known(ctx context.Context, name queueName) (*worqr.Queue, error) {
	q := f.Queue(string(name))
	return q, f.exists(ctx, q)
}

func (f *fleet) exists(ctx context.Context, q *worqr.Queue) error {
	s, err := q.Stats(ctx)
	if err != nil || s.Paused || s.Tokens > 0 || s.Waiting+s.Scheduled+s.Running+s.Failed+s.Workers > 0 {
		return err
	}
	for name, err := range f.Queues(ctx) {
		if errors.Is(err, worqr.ErrDenied) {
			return nil // it may be listed
		}
		if err != nil || name == q.Name() {
			return err
		}
	}
	return nothing(fmt.Sprintf("no queue %q exists under the prefix %q; list the queues with: worqr queues", q.Name(), f.prefix))
}

// workers returns the registered peers. It waits no longer than for a queue: some may be registered on a node
// that doesn't answer.
func (f *fleet) workers(ctx context.Context) (all []inspect.Worker, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, patienceEach, reading.ErrSlow)
	defer stop()
	for w, err := range f.Workers(ctx) {
		if err != nil {
			return all, fmt.Errorf("the workers can't be listed: %w", reading.Cause(ctx, err))
		}
		all = append(all, w)
	}
	return all, nil
}

// names returns the given queues, which must exist, or else all, sorted by name.
func (f *fleet) names(ctx context.Context, given queueNames) (queueNames, error) {
	if len(given) > 0 {
		for _, err := range eachOf(ctx, given, f.known) {
			none, absent := errors.AsType[nothing](err)
			switch {
			case absent:
				return nil, none
			case err != nil && asUnread(err) == nil:
				return nil, err
			}
		}
		return given, nil // an unreadable queue may exist; reading it returns the error
	}
	var all queueNames
	for name, err := range f.Queues(ctx) {
		if err != nil {
			return nil, err
		}
		all = append(all, queueName(name))
	}
	slices.Sort(all)
	return all, nil
}
