package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redisconn"
)

var (
	enqueue = verb("enqueue")
	add     = verb("add")
)

// A Producer adds tasks to queues, for all callers of a peer. It makes sure that the queues are
// listed. It's safe for concurrent use. A call blocks until Redis has answered, or ctx ends.
type Producer struct {
	calls      Runner
	space      keys.Space
	log        *logs.Log
	relist     time.Duration
	due        atomic.Bool // relistAll runs later
	unlistable atomic.Bool // the registry doesn't answer, or refuses: the user may not list queues, or the key has another type

	Refused atomic.Int64 // calls that added nothing, since Redis refused them or wasn't reached

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
	failing atomic.Bool     // Redis refused the last call that adds tasks
	upset   logs.Outage     // of that
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
// It fails with ErrTooLarge.
func (p *Producer) Enqueue(ctx context.Context, q Target, payloads [][]byte) error {
	k, began := p.of(q), ctx.Err() == nil
	r := reply(p.calls.One(ctx, k.enqueue.Call(redisconn.Payloads(ctx, payloads))))
	in := read(r.Value, r.Err)
	n := in.int()
	if n == 0 { // as with a known nonce
		in.fail(errMismatch)
	}
	return p.added(ctx, began, q, k, n == 2, unread(r, in.err))
}

// EnqueueOnce is Enqueue, once for each nonce within the window, at least 1 ms. fresh is true for the
// call that did it.
func (p *Producer) EnqueueOnce(ctx context.Context, q Target, nonce string, window time.Duration, payloads [][]byte) (fresh bool, err error) {
	began := ctx.Err() == nil
	r := reply(p.calls.One(ctx, enqueueCall(q.Keys, nonce, max(window, time.Millisecond), redisconn.Payloads(ctx, payloads))))
	in := read(r.Value, r.Err)
	n := in.int()
	return n > 0, p.added(ctx, began, q, p.of(q), n == 2, unread(r, in.err))
}

// added handles the result of a call that began before ctx had ended, or not. alone says that nothing else waits, and
// nobody serves the queue: it may have been deleted, and its name taken off the list of queues.
func (p *Producer) added(ctx context.Context, began bool, q Target, k *queueState, alone bool, err error) error {
	if err == nil || ctx.Err() == nil { // otherwise err says nothing about Redis
		p.log.Called(err)
	}
	ended := ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) && !errors.Is(err, ErrUnknown) // the call wasn't sent
	if !ended {
		p.judge(q, k, err)
	} else if began && ctx.Err() == context.DeadlineExceeded {
		p.Refused.Add(1)
	}
	if errors.Is(err, ErrUnknown) {
		k.listed.Store(false) // it's unknown whether the queue was alone
	}
	if err == nil {
		p.list(ctx, q, k, alone)
	}
	return err
}

// judge counts a call that has added nothing. It logs when Redis begins and ends to refuse new tasks. The Log tells that
// Redis doesn't answer.
func (p *Producer) judge(q Target, k *queueState, err error) {
	ours := errors.Is(err, ErrDuplicate) || errors.Is(err, ErrTooLarge) || IsMisplaced(err) // the caller's mistakes
	refused := IsAnswer(err) && !ours
	if refused || IsUnsent(err) {
		p.Refused.Add(1)
	}
	if refused || err == nil && k.failing.Load() {
		k.failing.Store(refused)
		k.upset.Note(p.log, "Redis refuses new tasks", err, "queue", q.Name)
	}
}

// relist is how often a producer lists the queue again, in case its name was lost.
const relist = time.Minute

// List lists the queue, unless that was done recently.
func (p *Producer) List(ctx context.Context, q Target) { p.list(ctx, q, p.of(q), false) }

// list adds the queue's name to the registry: when the queue is alone, since a Delete may just have
// removed it, and otherwise about once a minute for each peer. A worker of the queue lists it, too,
// so nothing is lost when this fails or ctx ends. If the registry doesn't answer, as when its node of a cluster is down,
// or refuses, it tries again in a minute: otherwise each call on each queue would wait for it.
func (p *Producer) list(ctx context.Context, q Target, k *queueState, alone bool) {
	first := !k.listed.Load() && k.listed.CompareAndSwap(false, true) // only one of several callers
	if first && p.due.CompareAndSwap(false, true) {
		time.AfterFunc(p.relist, p.relistAll)
	}
	if p.unlistable.Load() || !alone && !first {
		return
	}
	try, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A plain command, so that a user can be allowed to do just that.
	switch _, err := p.calls.One(try, redisconn.Command("SADD", p.space.Registry(), q.Name)); {
	case err == nil:
	case IsDenied(err), IsWrongType(err), try.Err() != nil && ctx.Err() == nil:
		p.unlistable.Store(true)
	default:
		k.listed.Store(false)
	}
}

// relistAll makes the next call on each queue list it again. One timer for all queues keeps none of
// them in memory.
func (p *Producer) relistAll() {
	p.due.Store(false) // before the loop: a queue that is listed behind it needs the next one
	p.unlistable.Store(false)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, k := range p.all {
		k.listed.Store(false)
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

// A Target is a queue to which tasks are added.
type Target struct {
	Name string
	ID   string // the name, or an id of its failed queue
	Keys keys.Queue
}

// A call of Add takes at most MaxTasks tasks, and one of Enqueue at most MaxPayloads payloads. Either
// takes MaxBytes, or a single task of any size.
const (
	MaxTasks    = 1000
	MaxPayloads = 5000
	MaxBytes    = 2 << 20
)

// A Rule says when the one of two tasks starts that stays, if one waits under the name.
type Rule string

// The rules: always the new time; never; only if it's later; only if it's earlier; the call fails if a
// task waits or runs under the name.
const (
	Always  Rule = "always"
	Never   Rule = "never"
	Later   Rule = "later"
	Earlier Rule = "earlier"
	Unique  Rule = "unique"
)

// A Task is a named task to add.
type Task struct {
	Name       string
	At         int64 // ms of Redis's time; 0: now
	Rule       Rule
	KeepRecord bool // the one that waits keeps its record and its counts
	KeepCounts bool // it keeps its counts of retries and crashes
	Nonce      string
	Window     time.Duration // for how long the nonce is known, at least 1 ms
	Record     Record
}

func addCall(s *Shared, tasks []Task) redisconn.Call {
	all := add.line(s, 5*len(tasks))
	for i := range tasks {
		t := &tasks[i]
		once := ""
		if t.Nonce != "" {
			once = fmt.Sprintf("%d:%s", max(t.Window.Milliseconds(), 1), t.Nonce)
		}
		how := fmt.Sprintf("%s:%d:%d", t.Rule, flag(t.KeepRecord), flag(t.KeepCounts))
		all = append(all, t.Name, max(t.At, 0), how, once, t.Record.Append(nil))
	}
	return add.callOf(s, all)
}

func readAdd(reply redisconn.Reply, n int) (names []string, skipped []int, alone bool, err error) {
	in := read(reply.Value, reply.Err)
	names = in.strings()
	in.lists(func(in *decoder) { skipped = append(skipped, int(in.int())-1) })
	alone = in.int() == 1
	for _, i := range skipped {
		if i < 0 || i >= n {
			in.fail(errMismatch)
		}
	}
	if len(names) != n {
		in.fail(errMismatch)
	}
	return names, skipped, alone, in.err
}

// Add adds 1 to MaxTasks named tasks, all or none. It returns their names, and the numbers of those that
// were skipped, since their nonces are known: such a task's name is the one that the first call gave,
// which is no task's if that call enqueued. It fails with ErrDuplicate if a unique task is waiting or
// running, and with ErrTooLarge. The same name or nonce twice is an error.
func (p *Producer) Add(ctx context.Context, q Target, tasks []Task) (names []string, skipped []int, err error) {
	k, began := p.of(q), ctx.Err() == nil
	r := reply(p.calls.One(ctx, addCall(k.shared, tasks)))
	names, skipped, alone, err := readAdd(r, len(tasks))
	return names, skipped, p.added(ctx, began, q, k, alone, unread(r, err))
}
