package store

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/topology"
)

// A Producer adds tasks to queues, for all callers of a peer. It makes sure that the queues
// are listed.
type Producer struct {
	calls  *topology.Router
	space  Space
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
	enqueue *redisconn.Head // of its calls
	listed  atomic.Bool     // the queue was recently added to the registry
	denied  atomic.Bool     // this user lacks the permission to add it
	foreign atomic.Bool     // the registry's key recently had another type
}

// A Target is a queue to which tasks are added.
type Target struct {
	Name string
	ID   string // the name, or an id of its failed queue
	Keys Keys
}

// NewProducer returns a producer. It does no I/O.
func NewProducer(l *Lines, s Space, log *logs.Log) *Producer {
	return &Producer{calls: l.Calls, space: s, log: log, relist: relist, all: map[string]*queueState{}}
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
		k = &queueState{enqueue: enqueue.call(q.Keys, "payload", []any(nil)).Head()}
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

// Payloads are copied before they are sent, unless ctx can't end: after a call was cut short, the
// connection may still read bytes that belong to the caller again.

// Enqueue adds payloads to the back of the queue, all or none. The call may be combined with others.
func (p *Producer) Enqueue(ctx context.Context, q Target, payloads [][]byte) error {
	k, args := p.of(q), redisconn.Payloads(ctx, payloads)
	alone, err := enqueued(p.calls.One(ctx, k.enqueue.Call(args)))
	return p.added(ctx, q, k, alone, err)
}

// EnqueueOnce enqueues once for each nonce within the window. fresh is true for the call that did.
func (p *Producer) EnqueueOnce(ctx context.Context, q Target, nonce string, window time.Duration, payloads [][]byte) (fresh bool, err error) {
	args := redisconn.Payloads(ctx, payloads)
	err = p.add(ctx, q, func() (alone bool, err error) {
		fresh, alone, err = EnqueueOnce(ctx, p.calls, q.Keys, nonce, window, args)
		return alone, err
	})
	return fresh, err
}

// Put puts a task under an entry. If an earlier call with the same Once has put or added a task,
// fresh is false, and key is the key of that task.
func (p *Producer) Put(ctx context.Context, q Target, entry string, c Change, once Once) (key string, fresh bool, err error) {
	c.Payload = bytes.Clone(c.Payload)
	first := ""
	err = p.add(ctx, q, func() (alone bool, err error) {
		first, alone, err = PutOnce(ctx, p.calls, q.Keys, entry, once.mark(), once.Window, c)
		return alone, err
	})
	switch {
	case err != nil:
		return "", false, err
	case first == "":
		return KeyOf(entry), true, nil
	}
	key, err = markedKey(first)
	return key, false, err
}

// Add adds tasks with cards, in one call, and returns their keys. If an earlier call with the same
// Once did so, it returns the keys of that call, and fresh is false.
func (p *Producer) Add(ctx context.Context, q Target, salt string, tasks []Added, once Once) (all []string, fresh bool, err error) {
	copied := make([]Added, len(tasks))
	for i, t := range tasks {
		copied[i] = Added{Card: t.Card, Payload: bytes.Clone(t.Payload)}
	}
	first := ""
	err = p.add(ctx, q, func() (alone bool, err error) {
		first, fresh, alone, err = Add(ctx, p.calls, q.Keys, salt, once.mark(), once.Window, copied)
		return alone, err
	})
	switch {
	case err != nil:
		return nil, false, err
	case !fresh:
		key, err := markedKey(first)
		return []string{key}, false, err
	}
	all, ok := keys.AddedKeys(first, len(tasks))
	if !ok {
		return nil, false, errReply
	}
	return all, true, nil
}

// add calls send, and makes sure that the queue is listed. send reports whether the queue was empty
// and unserved.
func (p *Producer) add(ctx context.Context, q Target, send func() (alone bool, err error)) error {
	alone, err := send()
	return p.added(ctx, q, p.of(q), alone, err)
}

// added handles the result of send.
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

// Unlist removes the queue from the registry if no key of it is left. A user who may not list
// queues can't unlist them either.
func (p *Producer) Unlist(ctx context.Context, q Target) error {
	p.of(q).listed.Store(false)
	err := Unlist(ctx, p.calls, p.space, q.Keys, q.Name)
	if IsWrongType(err) || IsDenied(err) {
		return nil
	}
	return err
}
