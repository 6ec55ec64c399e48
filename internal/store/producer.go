package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Producer adds tasks to queues, for all callers of a peer. It makes sure that the queues are
// listed. It's safe for concurrent use. A call blocks until Redis has answered, or ctx ends.
type Producer struct {
	calls  Runner
	space  keys.Space
	log    *logs.Log
	relist time.Duration
	due    atomic.Bool // relistAll runs later

	mu  sync.RWMutex
	all map[string]*queueState // by the queue's id; protected by mu
}

// mostKnown is how many queues a producer remembers.
const mostKnown = 1000

// queueState is what a producer knows about a queue.
type queueState struct {
	shared  *Shared
	enqueue *redisconn.Head // of calls without a nonce
	listed  atomic.Bool     // the queue was recently added to the registry
	denied  atomic.Bool     // this user lacks the permission to add it
	foreign atomic.Bool     // the registry's key recently had another type
}

// NewProducer returns a producer. It does no I/O.
func NewProducer(calls Runner, s keys.Space, log *logs.Log) *Producer {
	return &Producer{calls: calls, space: s, log: log, relist: relist, all: map[string]*queueState{}}
}

// of returns what is known about a queue. That may be forgotten during a call; then the next call
// lists the queue again, whatever this one learns.
func (p *Producer) of(q Target) *queueState {
	p.mu.RLock()
	k := p.all[q.ID]
	p.mu.RUnlock()
	if k != nil {
		return k
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k = p.all[q.ID]; k == nil {
		k = &queueState{shared: SharedOf(q.Keys), enqueue: enqueueCall(q.Keys, "", 0, nil).Head()}
		if len(p.all) >= mostKnown {
			for id := range p.all { // any one; it can be learned again
				delete(p.all, id)
				break
			}
		}
		p.all[q.ID] = k
	}
	return k
}

// Forget forgets everything about all queues, since Redis may have lost everything.
func (p *Producer) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.all)
}

// enqueueCall returns the call that enqueues payloads, once for each nonce within the window, or
// always if the window is 0.
func enqueueCall(q keys.Queue, nonce string, window time.Duration, payloads []any) redisconn.Call {
	names := []string{q.Waiting(), q.Idle(), q.Workers(), q.Once(nonce), keys.None(q)}
	return enqueue.text(q).Call(names, append([]any{q.Channel(""), window.Milliseconds()}, payloads...)...)
}

// Enqueue puts payloads at the back of the list, all or none. The call may be combined with others.
// It fails with ErrTooLarge. Without payloads, it does nothing.
func (p *Producer) Enqueue(ctx context.Context, q Target, payloads [][]byte) error {
	if len(payloads) == 0 || tooLarge(payloads) {
		return refuse(payloads)
	}
	k := p.of(q)
	in := read(p.calls.One(ctx, k.enqueue.Call(redisconn.Payloads(ctx, payloads))))
	return p.added(ctx, q, k, in.int() == 2, in.err)
}

// EnqueueOnce is Enqueue, once for each nonce within the window, at least 1 ms. fresh is true for the
// call that did it.
func (p *Producer) EnqueueOnce(ctx context.Context, q Target, nonce string, window time.Duration, payloads [][]byte) (fresh bool, err error) {
	if len(payloads) == 0 || tooLarge(payloads) {
		return false, refuse(payloads)
	}
	window = max(window, time.Millisecond)
	in := read(p.calls.One(ctx, enqueueCall(q.Keys, nonce, window, redisconn.Payloads(ctx, payloads))))
	n := in.int()
	return n > 0, p.added(ctx, q, p.of(q), n == 2, in.err)
}

// tooLarge reports whether payloads are more than one call takes.
func tooLarge(payloads [][]byte) bool {
	bytes := 0
	for _, p := range payloads {
		bytes += len(p)
	}
	return len(payloads) > MaxPayloads || len(payloads) > 1 && bytes > MaxBytes
}

func refuse(payloads [][]byte) error {
	if len(payloads) == 0 {
		return nil
	}
	return ErrTooLarge
}

// added handles the result of a call. alone says that nothing else waits, and nobody serves the queue:
// it may have been deleted, and its name taken off the list of queues.
func (p *Producer) added(ctx context.Context, q Target, k *queueState, alone bool, err error) error {
	if err == nil || ctx.Err() == nil { // otherwise err says nothing about Redis
		p.log.Called(err)
	}
	if errors.Is(err, ErrUnknown) {
		k.listed.Store(false) // it's unknown whether the queue was alone
	}
	if err == nil {
		p.list(ctx, q, k, alone)
	}
	return err
}

// relist is how often a producer lists the queue again, in case its name was lost.
const relist = time.Minute

// List lists the queue, unless that was done recently.
func (p *Producer) List(ctx context.Context, q Target) { p.list(ctx, q, p.of(q), false) }

// list adds the queue's name to the registry: when the queue is alone, since a Delete may just have
// removed it, and otherwise about once a minute for each peer. A worker of the queue lists it, too,
// so nothing is lost when this fails or ctx ends. list doesn't try again if the user lacks the
// permission. If the registry's key has another type, it tries again in a minute.
func (p *Producer) list(ctx context.Context, q Target, k *queueState, alone bool) {
	first := !k.listed.Load() && k.listed.CompareAndSwap(false, true) // only one of several callers
	if first && p.due.CompareAndSwap(false, true) {
		time.AfterFunc(p.relist, p.relistAll)
	}
	if k.denied.Load() || k.foreign.Load() || !alone && !first {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	switch err := AddName(ctx, p.calls, p.space, q.Name); {
	case err == nil:
	case IsDenied(err):
		k.denied.Store(true)
	case IsWrongType(err):
		k.foreign.Store(true)
	default:
		k.listed.Store(false)
	}
}

// relistAll makes the next call on each queue list it again. One timer for all queues keeps none of
// them in memory.
func (p *Producer) relistAll() {
	p.due.Store(false) // before the loop: a queue that is listed behind it needs the next one
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, k := range p.all {
		k.listed.Store(false)
		k.foreign.Store(false)
	}
}

// Unlist removes the queue from the registry if no key of it is left. A user who may not list queues
// can't unlist them either.
func (p *Producer) Unlist(ctx context.Context, q Target) error {
	p.of(q).listed.Store(false)
	err := Unlist(ctx, p.calls, p.space, q.Keys, q.Name)
	if IsWrongType(err) || IsDenied(err) {
		return nil
	}
	return err
}
