package topology

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Router sends calls to the right server. With a single server, there is no choice. In a cluster
// it's the node that owns the slot of the call's key. If a node refuses a call because another node
// owns the slot, or because the slot is moving, the Router retries it until the call times out; the
// caller doesn't notice. It never repeats a call that may have been carried out.
//
// In a cluster, the calls of one Do run in no particular order, even within a slot: while its keys
// move, a node redirects one call and carries out the next. Callers that need an order wait for one
// Do before the next.
type Router struct {
	one     *redisconn.Line // to the single server; nil in a cluster
	watched bool            // sentinels watch the single server
	patient bool            // it retries calls that the single server has postponed
	cluster *Cluster
	line    func(dial redisconn.Dial) *redisconn.Line
	timeout time.Duration
	unused  time.Duration
	within  time.Duration // patience

	mu     sync.Mutex // protects the fields below
	nodes  map[string]*node
	life   context.Context // of calls in flight; ends with Abort and Close
	end    context.CancelFunc
	closed bool
	timer  *time.Timer    // of the next sweep; nil if none is due
	errand sync.WaitGroup // goroutines
}

// A node is a node of a cluster. Router.mu protects it.
type node struct {
	*redisconn.Line
	used   time.Time
	failed time.Time // when it was last found unreachable; zero if it's reachable
}

const (
	patience  = 250 * time.Millisecond // for a connection; then another node is asked; at most a quarter of the timeout
	downFor   = 500 * time.Millisecond // how long an unreachable node is left alone; at most half of the timeout
	unusedFor = time.Minute            // before the connection to a node without slots is closed
)

// NewRouter returns a router to the servers. line returns the line to a server, which
// all calls share. timeout is the timeout of a call.
func NewRouter(p *Servers, timeout time.Duration, line func(dial redisconn.Dial) *redisconn.Line) *Router {
	if timeout == 0 {
		timeout = redisconn.DefaultTimeout
	}
	r := &Router{cluster: p.cluster, line: line, timeout: timeout, unused: unusedFor, within: patience, nodes: map[string]*node{}}
	r.life, r.end = context.WithCancel(context.Background())
	if p.cluster == nil {
		r.one, r.watched = line(p.dial), p.watched
		return r
	}
	p.cluster.onChange(r.sweepLater)
	return r
}

// Do makes calls, and returns a reply for each, as Line.Do does.
func (r *Router) Do(ctx context.Context, calls ...redisconn.Call) []redisconn.Reply {
	if r.one == nil {
		return r.route(ctx, calls)
	}
	replies := r.one.Do(ctx, calls...)
	if slices.ContainsFunc(replies, r.isPutOff) {
		r.trip(ctx, calls, replies).follow()
	}
	return replies
}

// One makes a call, as Do does.
func (r *Router) One(ctx context.Context, c redisconn.Call) (any, error) {
	reply := r.Do(ctx, c)[0]
	return reply.Value, reply.Err
}

// Home returns the name of the node that has the queue now; "" with a single server, or if it isn't
// known.
func (r *Router) Home(q keys.Queue) string { return r.ownerOf(q.Slot()) }

// Owner returns the name of the node that has a key now; "" with a single server, or if it isn't
// known.
func (r *Router) Owner(key string) string { return r.ownerOf(keys.Slot(key)) }

func (r *Router) ownerOf(slot int) string {
	if r.one != nil {
		return ""
	}
	return r.cluster.owner(slot)
}

// Homes groups queues by the node that has them now: it returns their indexes.
func (r *Router) Homes(all []keys.Queue) (groups [][]int) {
	at := map[string]int{}
	for i, q := range all {
		home := r.Home(q)
		if _, ok := at[home]; !ok {
			at[home] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[home]] = append(groups[at[home]], i)
	}
	return groups
}

// InCluster reports whether there may be several servers.
func (r *Router) InCluster() bool { return r.one == nil }

// Made returns when the connection to a node, or to the single server, was made; zero if there is
// none.
func (r *Router) Made(home string) time.Time {
	if r.one != nil {
		return r.one.Made()
	}
	r.mu.Lock()
	n := r.nodes[home]
	r.mu.Unlock()
	if n == nil {
		return time.Time{}
	}
	return n.Made()
}

// A Node is a server: the only one, or one of a cluster. Calls on its line don't follow
// redirections.
type Node struct {
	Name    string // "" if it is the only one
	Replica bool
	Line    *redisconn.Line
}

// Nodes returns all servers, masters first, as reported by some node.
func (r *Router) Nodes(ctx context.Context) (all []Node, err error) {
	if r.one != nil {
		return []Node{{Line: r.one}}, nil
	}
	if err := r.survey(ctx); err != nil {
		return nil, err
	}
	masters, replicas := r.cluster.members()
	for i, at := range slices.Concat(masters, replicas) {
		n := r.to(at)
		if n == nil {
			return nil, redisconn.ErrClosed
		}
		all = append(all, Node{Name: at, Replica: i >= len(masters), Line: n.Line})
	}
	return all, nil
}

// survey asks nodes for the owners of all slots until one answers. It asks connected nodes first.
func (r *Router) survey(ctx context.Context) (err error) {
	_, known := r.cluster.all()
	slices.SortStableFunc(known, func(a, b string) int { return r.Made(b).Compare(r.Made(a)) })
	err = errors.New("the cluster has no nodes")
	for _, at := range known {
		if err = r.ask(ctx, at); err == nil || ctx.Err() != nil {
			break
		}
	}
	return err
}

// Abort ends calls in flight, and returns. Later calls dial again.
func (r *Router) Abort() {
	r.mu.Lock()
	r.end()
	if !r.closed {
		r.life, r.end = context.WithCancel(context.Background())
	}
	r.mu.Unlock()
	for _, l := range r.lines() {
		l.Abort()
	}
}

// Close closes the connections, and waits until calls in flight have ended. Later calls fail with
// redisconn.ErrClosed.
func (r *Router) Close() {
	r.mu.Lock()
	r.closed = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.end()
	r.mu.Unlock()
	var all sync.WaitGroup
	for _, l := range r.lines() {
		all.Go(l.Close)
	}
	all.Wait()
	r.errand.Wait()
}

// lines returns the lines to all servers.
func (r *Router) lines() (all []*redisconn.Line) {
	if r.one != nil {
		return []*redisconn.Line{r.one}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		all = append(all, n.Line)
	}
	return all
}

// anySlot is the slot of a call that any node may carry out.
const anySlot = -1

// home returns the node for a call of the slot: its owner or, if the owner is unknown or down, any
// node that is up, which redirects the call. It returns avoid only if no other node is known.
func (r *Router) home(slot int, avoid string) string {
	if slot != anySlot {
		if at := r.cluster.owner(slot); at != "" && at != avoid && !r.isDown(at) {
			return at
		}
	}
	_, known := r.cluster.all()
	others := slices.DeleteFunc(known, func(at string) bool { return at == avoid })
	up := slices.DeleteFunc(slices.Clone(others), r.isDown)
	there := slices.DeleteFunc(slices.Clone(up), func(at string) bool { return r.Made(at).IsZero() })
	for _, of := range [][]string{there, up, others} {
		if len(of) > 0 {
			return of[rand.IntN(len(of))]
		}
	}
	return avoid
}

// isDown reports whether a node couldn't be reached recently and still has no connection. There may
// be one: a dial that callers no longer wait for may have succeeded.
func (r *Router) isDown(at string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.nodes[at]
	return n != nil && !n.failed.IsZero() && time.Since(n.failed) < min(downFor, r.timeout/2) && n.Made().IsZero()
}

// to returns a node with its line, or nil if the router is closed.
func (r *Router) to(at string) *node {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	n := r.nodes[at]
	if n == nil {
		n = &node{Line: r.line(r.cluster.dial(at)).Routed()}
		r.nodes[at] = n
		r.sweepLaterLocked() // it may own nothing
	}
	n.used = time.Now()
	return n
}

func (r *Router) sweepLater() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweepLaterLocked()
}

func (r *Router) sweepLaterLocked() {
	if r.timer == nil && !r.closed {
		r.timer = time.AfterFunc(r.unused, r.sweep)
	}
}

// sweep removes nodes that own nothing if they haven't been used for a while, and closes their
// connections. A call that comes at that moment isn't sent, and is repeated. As long as another
// node owns nothing, sweep runs again.
func (r *Router) sweep() {
	owners, _ := r.cluster.all()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = nil
	if r.closed {
		return
	}
	for at, n := range r.nodes {
		switch _, owns := slices.BinarySearch(owners, at); {
		case owns:
		case time.Since(n.used) < r.unused || n.Heard() < r.unused: // calls may take a while, and other code may have the line
			r.sweepLaterLocked()
		default:
			delete(r.nodes, at)
			r.errand.Go(n.Close)
		}
	}
}

// reached records whether a node could be reached.
func (r *Router) reached(at string, was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.nodes[at]; n != nil {
		if n.failed = (time.Time{}); !was {
			n.failed = time.Now()
		}
	}
}

// learn asks a node for all owners in the background, once in a while.
func (r *Router) learn(at string) {
	if !r.cluster.mayAsk(time.Now()) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.cluster.asked(time.Now(), false)
		return
	}
	life := r.life
	r.errand.Go(func() {
		err := r.ask(life, at)
		refused := redisconn.Denied(err) || redisconn.UnknownCommand(err)
		if saysNothing(err) {
			r.cluster.met.Store(true) // as in meet, which may not wait that long
		}
		r.cluster.asked(time.Now(), refused)
	})
}

// ask asks a node for all owners.
func (r *Router) ask(ctx context.Context, at string) error {
	n := r.to(at)
	if n == nil {
		return redisconn.ErrClosed
	}
	reply, err := n.One(ctx, redisconn.Command("CLUSTER", "SLOTS"))
	if err != nil {
		return redisconn.Plain(err)
	}
	said, err := readSlots(reply, at)
	if err == nil {
		r.cluster.take(said)
		r.cluster.met.Store(true)
	}
	return err
}

// meet checks that a node answers, and that the first server that is reached is in cluster mode. A single server would
// carry out the call, and nobody would notice. A server that doesn't say, because the user may not ask or
// for a reason of its own, counts as a node.
func (r *Router) meet(ctx context.Context, n *node, at string) error {
	if r.cluster.met.Load() {
		if _, err := n.One(ctx, redisconn.Command("PING")); !redisconn.Usable(err) {
			return err
		}
		return nil
	}
	err := r.ask(ctx, at)
	if saysNothing(err) {
		r.cluster.met.Store(true)
		return nil
	}
	return err
}

// saysNothing reports whether a server has answered, but the answer doesn't say whether it is in
// cluster mode, and won't later.
func saysNothing(err error) bool {
	return redisconn.Answered(err) && redisconn.Postponed(err) == "" || errors.Is(err, errSlots)
}
