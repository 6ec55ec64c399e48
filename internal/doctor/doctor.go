// Package doctor checks the keys of a fleet, repairs what keeps tasks from starting, and explains why a task doesn't
// run. It reads rows from the store and returns rows; functions without Redis interpret them.
package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

type Config struct {
	Runner store.Runner
	Space  store.Space
	Nodes  func(ctx context.Context) ([]store.Node, error) // nodes of a cluster; nil for a single server
	Lease  time.Duration                                   // after which suspicious things are checked again
	Repair bool
	Prefix string // as shown in the report
	Limits inspect.CheckOptions
	Notes  store.Notes // with the silences
}

// A checkup is one walk through the keyspace. It finds keys page by page, and scripts then check
// them one by one.
type checkup struct {
	Config
	ctx      context.Context
	report   inspect.CheckReport
	returned int // number of tasks returned to the front

	nodes []store.Node
	lost  map[string]bool // nodes that don't answer

	exams   map[store.Keys]*exam
	present map[string]bool // workers that are registered
	known   map[string]*inspect.Worker
	doubts  []func() error  // check something again, a lease later
	said    map[string]bool // findings, to avoid duplicates
}

// An exam is the check of one queue.
type exam struct {
	name    string
	id      string // the name, or a different one for its failed queue
	keys    store.Keys
	node    string          // where it was found
	lost    bool            // it can't be examined
	lists   map[string]bool // attempts with a list, until their holder is found
	holders map[string]bool // workers that hold something
	vitals  vitals
	members []string
	returns bool // something must be returned
}

// Examine walks through the keyspace and reports problems. With Repair it also repairs what it can
// without losing a task, and returns how many tasks it returned to the front. If it fails, the
// report covers what was done before.
func Examine(ctx context.Context, config Config) (r *inspect.CheckReport, returned int, err error) {
	c := &checkup{
		Config: config, ctx: ctx, report: inspect.CheckReport{Repair: config.Repair, Prefix: config.Prefix},
		exams: map[store.Keys]*exam{}, present: map[string]bool{}, said: map[string]bool{},
		known: map[string]*inspect.Worker{}, lost: map[string]bool{},
	}
	for _, part := range []func() error{c.servers, c.walk, c.registered, c.queues, c.peers, c.again} {
		if err = part(); err != nil {
			break
		}
	}
	names := map[string]bool{}
	for _, e := range c.exams {
		names[e.name] = true
	}
	c.report.Queues = len(names)
	Sort(&c.report)
	return &c.report, c.returned, err
}

// walk reads the names of all keys, on each node that has some. It misses keys that move from a node
// that is yet to be read to one that has been read; registered adds their queues.
func (c *checkup) walk() error {
	for _, n := range c.nodes {
		if n.Replica || c.lost[n.Name] {
			continue
		}
		err := c.through(n)
		if c.inCluster() && c.ctx.Err() == nil && store.IsAway(err) {
			c.gone(n, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// registered adds queues whose keys the walk has missed, as it may while slots move.
func (c *checkup) registered() error {
	if !c.inCluster() || !c.isWhole() {
		return nil
	}
	for name, err := range store.Queues(c.ctx, c.Runner, c.Space) {
		if store.IsWrongType(err) {
			return nil // that was reported
		}
		if err != nil {
			return c.passOver(nil, err)
		}
		for _, q := range []store.Keys{c.Space.Queue(name), c.Space.Queue(name).Failed()} {
			if c.exams[q] != nil {
				continue
			}
			if used, err := store.InUse(c.ctx, c.Runner, q); err != nil {
				return c.passOver(nil, err)
			} else if used {
				c.exam(store.Key{Queue: &q, Name: name})
			}
		}
	}
	return nil
}

func (c *checkup) through(n store.Node) error {
	for page, err := range store.Keyspace(c.ctx, n, c.Runner, c.Space) {
		if err != nil {
			return err
		}
		for _, f := range page {
			switch {
			case !f.Ours:
				c.unknown(f.Name)
				continue
			case f.Is == string(f.Key.Type):
				c.note(f.Key)
			default:
				c.foreign(f.Key, f.Is)
			}
			c.report.Keys++
			if f.Key.Queue != nil {
				c.exam(f.Key).node = n.Name
			}
		}
	}
	return nil
}

func (c *checkup) note(k store.Key) {
	switch {
	case k.Queue == nil && k.Kind == "worker":
		c.present[k.Part] = true
	case k.Kind == "process":
		c.exam(k).lists[k.Part] = true
	case k.Kind == "working":
		c.exam(k).holders[k.Part] = true
	}
}

func (c *checkup) exam(k store.Key) *exam {
	e := c.exams[*k.Queue]
	if e == nil {
		e = &exam{name: k.Name, id: k.Name, keys: *k.Queue, lists: map[string]bool{}, holders: map[string]bool{}}
		if k.Queue.IsFailed() {
			e.id += " (failed)"
		}
		c.exams[*k.Queue] = e
	}
	return e
}

// unknown reports a key that isn't one of ours.
func (c *checkup) unknown(key string) {
	f := inspect.Finding{Kind: unknown, Severity: inspect.SeverityNotice, Key: words.Clip(key),
		Text: "worqr uses no key with this name. Find out which program wrote it, and give that program another prefix."}
	if name, ok := strings.CutPrefix(key, c.Prefix+":queues:"); ok && name != "" && !strings.ContainsAny(name, "{}") {
		f.Severity, f.Title = inspect.SeverityStuck, "Tasks are on a list without braces"
		f.Text = fmt.Sprintf("If these are tasks, a producer left out the braces, and they aren't served: it should push to %s:queues:{%s}.", c.Prefix, words.Shown(name))
	}
	c.found(f)
}

func (c *checkup) foreign(k store.Key, is string) {
	f := inspect.Finding{Kind: foreign, Severity: inspect.SeverityStopped,
		Text: fmt.Sprintf("This key is a %s but must be a %s. Move or delete it; worqr doesn't touch it. The rest of the queue was checked.", words.Shown(is), k.Type)}
	switch {
	case k.Queue != nil:
		f.Queue, f.Key = c.exam(k).id, keyOf(*k.Queue, k.Kind)
		if k.Part != "" {
			f.Key += ":" + veil(k.Kind, k.Part)
		}
	case k.Kind == "worker":
		f.Key = words.Clip(c.Space.Worker(k.Part))
	default:
		f.Key = map[string]string{"notes": c.Space.Notes(), "registry": c.Space.Registry(), "protocol": c.Space.Protocol(), "workers": c.Space.Workers(), "versions": c.Space.Versions()}[k.Kind]
	}
	c.found(f)
}

func (c *checkup) queues() error {
	for _, e := range slices.SortedFunc(maps.Values(c.exams), func(a, b *exam) int { return strings.Compare(a.id, b.id) }) {
		if e.lost || c.lost[e.node] {
			continue // that was reported
		}
		if err := c.passOver(e, c.queue(e)); err != nil {
			return fmt.Errorf("examine on %q: %w", e.name, err)
		}
	}
	return nil
}

// again runs the second checks, a lease later.
func (c *checkup) again() error {
	if len(c.doubts) == 0 {
		return nil
	}
	select {
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	case <-time.After(c.Lease):
	}
	for _, look := range c.doubts {
		if err := look(); err != nil {
			return c.passOver(nil, err) // the remaining checks would have to wait for the node, too
		}
	}
	return nil
}
