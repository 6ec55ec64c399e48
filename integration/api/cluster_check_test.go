package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// about returns the findings of a kind.
func about(r *inspect.CheckReport, kind inspect.FindingKind) (all []inspect.Finding) {
	for _, f := range r.Findings {
		if f.Kind == kind {
			all = append(all, f)
		}
	}
	return all
}

// Check finds nothing wrong with a healthy cluster, even while slots move. Damage on any of its
// nodes is found and repaired.
func TestClusterCheck(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0)
	const lease = 500 * time.Millisecond
	f := newFleetAt(t, c, lease, "a", "b", "c") // on three nodes
	names, ran, streams := f.names, f.ran, f.streams()
	for _, name := range names {
		eventually(t, "tasks run", func() bool { return ran[name].len() > 50 })
	}
	doctor := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: lease})
	var moved atomic.Int64
	moving, enough := context.WithCancel(t.Context())
	var mover sync.WaitGroup
	mover.Go(func() {
		for moving.Err() == nil {
			away(t, c, names[moved.Load()%int64(len(names))])
			moved.Add(1)
		}
	})
	for moved.Load() < 5 {
		report := sure(doctor.Check(t.Context(), nil))(t)
		if !intact(report) || report.Queues != 3 || len(ills(report)) > 0 {
			t.Error(report)
		}
	}
	enough()
	mover.Wait()
	for _, s := range streams {
		s.close()
	}
	for _, name := range names {
		allDone(t, f.peers[0].Queue(name))
		eventually(t, "nobody notes ages", func() bool {
			return redistest.Do(t, at(t, c, name), "EXISTS", "p:ages:{"+name+"}") == int64(0)
		})
	}
	calm := sure(doctor.Check(t.Context(), nil))(t)
	if len(ills(calm)) > 0 {
		t.Error(calm)
	}

	for _, name := range names {
		redistest.Do(t, at(t, c, name), "LPUSH", "p:process:{"+name+"}:lost", canary)
	}
	report := sure(doctor.Check(t.Context(), nil))(t)
	is.Equal(count(report, "orphan"), 3)
	is.Equal(report.Keys, calm.Keys+3)
	report = sure(doctor.Repair(t.Context(), nil))(t)
	is.Equal(count(report, "orphan"), 3)
	is.True(intact(report))
	for _, name := range names {
		eventually(t, "what was lost runs", func() bool { return ran[name].of(canary) == 1 })
	}
	eventually(t, "all is well", func() bool { return len(ills(sure(doctor.Check(t.Context(), nil))(t))) == 0 })
}

// Problems with a single node are found, and the finding names the node.
func TestClusterCheckNodes(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 1) // one replica, of the first master
	doctor := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
	check := func() *inspect.CheckReport { t.Helper(); return sure(doctor.Check(t.Context(), nil))(t) }
	one := func(kind inspect.FindingKind, severity inspect.Severity, words ...string) {
		t.Helper()
		all := about(check(), kind)
		all = slices.DeleteFunc(all, func(f inspect.Finding) bool {
			return f.Severity != severity || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(f.Text, w) })
		})
		if len(all) != 1 {
			t.Errorf("%s: not found once:\n%v", kind, check())
		}
	}
	enqueue(t, openAt(t, c.URL(), worqr.Options{Prefix: "other"}).Queue("a"), "x") // nodes list a replica only after its first write
	_, port, _ := strings.Cut(c.Nodes[3].Addr(), ":")
	eventually(t, "each node lists the replica", func() bool {
		return !slices.ContainsFunc(c.Nodes, func(n *redistest.Server) bool {
			return !strings.Contains(fmt.Sprint(redistest.Do(t, redistest.Dial(t, n.URL()), "CLUSTER", "SLOTS")), " "+port+" ")
		})
	})
	is.True(intact(check()))
	one("replication", inspect.SeverityNotice, c.Nodes[1].Addr(), c.Nodes[2].Addr(), "no replica")
	one("full-coverage", inspect.SeverityNotice, c.Nodes[0].Addr(), c.Nodes[3].Addr(), "Set it to no")
	onEach(t, c, "CONFIG", "SET", "cluster-require-full-coverage", "no")
	is.Equal(count(check(), "full-coverage"), 0)
	redistest.Do(t, redistest.Dial(t, c.Nodes[1].URL()), "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	one("eviction-policy", inspect.SeverityRisk, "Node "+c.Nodes[1].Addr()+": ")
	onEach(t, c, "CONFIG", "SET", "appendonly", "yes")
	redistest.Do(t, redistest.Dial(t, c.Nodes[3].URL()), "CONFIG", "SET", "appendonly", "no")
	one("persistence", inspect.SeverityRisk, "Node "+c.Nodes[3].Addr()+": ") // a replica, too
	is.Equal(len(ills(check())), 0)

	// An unfinished move, with half of a queue's keys.
	q := openAt(t, c.URL(), worqr.Options{Prefix: "p"}).Queue("a")
	enqueue(t, q, "x")
	add(t, q, worqr.TaskSpec{Key: "key", Payload: []byte("later"), At: time.Now().Add(time.Hour)})
	slot := c.Slot(t, "{a}")
	to := c.Nodes[0]
	if ownerOf(t, c, "{a}") == to {
		to = c.Nodes[1]
	}
	from := c.BeginMove(t, slot, to)
	is.Equal(c.MoveKeys(t, slot, 2, from, to), 2)
	short := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond, CallTimeout: time.Second})
	report := sure(short.Check(t.Context(), nil))(t)
	is.Equal(len(about(report, "cluster")), 1)
	is.True(strings.Contains(about(report, "cluster")[0].Text, `The queue "a" can't be used: its slot is being moved`))
	for c.MoveKeys(t, slot, 100, from, to) > 0 {
	}
	c.EndMove(t, slot, from, to)
	is.Equal(count(check(), "cluster"), 0)
	is.True(intact(check()))

	// A slot without a node.
	onEach(t, c, "CLUSTER", "DELSLOTS", slot)
	one("cluster", inspect.SeverityLost, "1 slot belongs to no node")
}

// A user with the doctor's rule of docs/security.md can run Check in a cluster.
func TestClusterDoctor(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 2, 0)
	for user, more := range map[string][]string{
		"doctor": redistest.ClusterRule(t, "doctor"), "halved": {"+cluster|slots"}, "none": nil,
	} {
		url := clusterUser(t, c, user, append(redistest.Rule(t, "doctor", "p"), more...)...)
		p := openAt(t, url, worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond})
		enqueue(t, p.Queue("a"), "x")
		report, err := p.Check(t.Context(), nil)
		switch user {
		case "doctor":
			is.NoErr(err)
			is.Equal(count(report, "not-permitted"), 0)
			is.Equal(report.Queues, 1)
		case "halved":
			is.NoErr(err)
			is.Equal(count(report, "not-permitted"), 1)
		case "none":
			is.True(errors.Is(err, worqr.ErrDenied))
		}
	}
}

// While the node of the fleet's own keys is dead, a peer on another node still enqueues, and leaves without an error.
func TestClusterDeadRoster(t *testing.T) {
	is := parallel(t)
	c := partial(t)
	ctx := t.Context()
	roster := ownerOf(t, c, "p:workers")
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p", CallTimeout: 3 * time.Second})
	var q *worqr.Queue
	for i := 0; q == nil; i++ {
		if name := fmt.Sprint("q", i); ownerOf(t, c, "{"+name+"}") != roster {
			q = p.Queue(name)
		}
	}
	is.NoErr(p.StartWorker(ctx))
	is.NoErr(q.StartWork(ctx))
	roster.Kill()
	eventually(t, "the others know", func() bool {
		_, err := length(p.Workers(ctx))
		return err != nil
	})
	is.NoErr(q.Enqueue(ctx, []byte("x")))
	is.NoErr(p.StopWorker(ctx))
	is.Equal(sure(q.Stats(ctx))(t).Workers, 0)
}

// With one node dead, the others are still checked and listed, and workers are evicted there, within
// the time of a few calls. Errors name the dead node.
func TestClusterDeadNode(t *testing.T) {
	is := parallel(t)
	c := partial(t)
	p := openAt(t, c.URL(), worqr.Options{Prefix: "p", Lease: 150 * time.Millisecond, CallTimeout: 3 * time.Second})
	ctx := t.Context()
	registry, roster := ownerOf(t, c, "p:registry"), ownerOf(t, c, "p:workers")
	dead := c.Nodes[slices.IndexFunc(c.Nodes, func(n *redistest.Server) bool { return n != registry && n != roster })]
	queues, ids := map[bool][]string{}, map[bool][]string{} // true: on the node that dies
	for i := range 180 {
		name, worker := fmt.Sprintf("q%03d", i), fmt.Sprintf("w%03d", i)
		is.NoErr(p.Queue(name).Enqueue(ctx, []byte("x")))
		redistest.Do(t, at(t, c, name), "LPUSH", "p:process:{"+name+"}:lost", canary)
		redistest.Do(t, at(t, c, name), "ZADD", "p:workers:{"+name+"}", 1, "dead")
		its := ownerOf(t, c, "p:worker:"+worker)
		redistest.Do(t, redistest.Dial(t, its.URL()), "HSET", "p:worker:"+worker, "name", "n")
		redistest.Do(t, redistest.Dial(t, roster.URL()), "SADD", "p:workers", worker)
		lost := ownerOf(t, c, "{"+name+"}") == dead
		queues[lost], ids[its == dead] = append(queues[lost], name), append(ids[its == dead], worker)
	}
	is.True(len(queues[true]) > 50 && len(ids[true]) > 50)
	dead.Kill()
	eventually(t, "the others know", func() bool {
		_, err := p.Queue(queues[true][0]).Stats(ctx)
		return err != nil && strings.Contains(err.Error(), dead.Addr())
	})
	names := func(err error) { // checks that err names the node
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), dead.Addr()) {
			t.Errorf("the node %s isn't named: %v", dead.Addr(), err)
		}
	}
	began := time.Now()
	soon := func() { // a few timeouts of 3 s, not one for each queue and worker on the node
		t.Helper()
		if took := time.Since(began); took > 50*time.Second {
			t.Errorf("it took %v", took)
		}
		began = time.Now()
	}
	report := sure(p.Check(ctx, nil))(t)
	soon()
	is.True(!intact(report))
	is.True(slices.ContainsFunc(about(report, "cluster"), func(f inspect.Finding) bool { return f.Subject == dead.Addr() }))
	var found []string
	for _, f := range about(report, "orphan") {
		found = append(found, f.Queue)
	}
	slices.Sort(found)
	is.Equal(found, queues[false])
	is.Equal(sure(length(p.Queues(ctx)))(t), 180)
	var workers []string
	var err error
	for w, e := range p.Workers(ctx) {
		if e != nil {
			err = e
			continue
		}
		workers = append(workers, w.ID)
	}
	soon()
	names(err)
	slices.Sort(workers)
	is.Equal(workers, ids[false])
	returned, err := p.FailWorker(ctx, "dead")
	soon()
	names(err)
	is.Equal(returned, 0)
	for _, name := range queues[false] {
		is.Equal(sure(redis.Int(at(t, c, name).Do("ZCARD", "p:workers:{"+name+"}")))(t), 0)
	}
	_, err = p.Sweep(ctx)
	soon()
	names(err)
}

// A peer that connects to a cluster node as to a single server fails with an error that says what to
// do, however it notices.
func TestClusterNodeAlone(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 2, 0)
	node := c.Nodes[0]
	for _, user := range []string{"", "dumb"} { // dumb may not run INFO
		if user != "" {
			onEach(t, c, "ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", "-info")
			user += ":pw@"
		}
		for name, open := range map[string]func(worqr.Options) *worqr.Peer{
			"URL": func(o worqr.Options) *worqr.Peer { return openDoctor(t, "redis://"+user+node.Addr(), o) },
			"pool": func(o worqr.Options) *worqr.Peer {
				p := worqr.New(&redis.Pool{DialContext: func(ctx context.Context) (redis.Conn, error) {
					return redis.DialURLContext(ctx, "redis://"+user+node.Addr())
				}}, &o)
				t.Cleanup(func() { _ = p.Close() })
				return p
			},
		} {
			var log journal
			p := open(worqr.Options{Prefix: "p", Logger: log.Logger(), Lease: 300 * time.Millisecond})
			clear := func(err error) {
				t.Helper()
				if !errors.Is(err, worqr.ErrInvalid) || strings.Count(err.Error(), "this server is part of a cluster; use Open with redis+cluster://") != 1 {
					t.Errorf("%s as %q: %v", name, user, err)
				}
			}
			var errs []error
			for _, q := range []string{"a", "b"} { // on both nodes
				if err := p.Queue(q).Enqueue(t.Context(), []byte("x")); err != nil {
					errs = append(errs, err)
				}
			}
			is.True(len(errs) > 0)
			for _, err := range errs {
				clear(err)
			}
			_, err := p.Check(t.Context(), nil)
			clear(err)
			p.Queue("a").Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
			p.Queue("b").Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second) // in case Run keeps retrying
			err = p.Run(ctx)
			stop()
			clear(err)
			is.True(len(log.Lines("part of a cluster")) <= 1)
		}
	}
}
