package doctor

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

func TestMain(m *testing.M) { os.Exit(redistest.MainOfMany(m.Run)) }

// TestCluster checks findings about nodes and their cluster.
func TestCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tell func(a, b *view) // b is a replica of a
		want string
	}{
		"well": {func(a, b *view) {}, ""},
		"one evicts": {func(a, b *view) { a.told["maxmemory_policy"] = "allkeys-lru" },
			"risk eviction-policy at a: Node a: The maxmemory-policy is allkeys-lru"},
		"both evict": {func(a, b *view) {
			a.told["maxmemory_policy"], b.told["maxmemory_policy"] = "allkeys-lru", "allkeys-lru"
		}, "risk eviction-policy at : Nodes a, b: The maxmemory-policy is allkeys-lru"},
		"without a replica": {func(a, b *view) { a.told["connected_slaves"], a.settings["min-replicas-to-write"] = "0", "0" }, "notice replication at a: Node a: Redis has no replica"},
		"late copies": {func(a, b *view) {
			a.settings["repl-diskless-sync-delay"], b.settings["repl-diskless-sync-delay"] = "5", "5"
		}, "notice replication at : Nodes a, b: repl-diskless-sync-delay is 5"},
		"a lost replica": {func(a, b *view) { b.told["master_link_status"] = "down" }, "risk replication at b: Node b: This replica has lost its master"},
		"down":           {func(a, b *view) { a.told["cluster_state"] = "fail" }, "lost cluster at a: Node a: cluster_state is fail"},
		"unassigned":     {func(a, b *view) { a.told["cluster_slots_assigned"] = "16383" }, "lost cluster at a: Node a: 1 slot belongs to no node"},
		"failed":         {func(a, b *view) { a.told["cluster_slots_fail"] = "2" }, "lost cluster at a: Node a: 2 slots belong to a node that has failed"},
		"all or nothing": {func(a, b *view) { a.settings["cluster-require-full-coverage"] = "yes" }, "notice full-coverage at a: Node a: cluster-require-full-coverage is yes"},
	} {
		views := []*view{{node: store.Node{Name: "a"}}, {node: store.Node{Name: "b", Replica: true}}}
		for _, v := range views {
			v.told = store.Told{"aof_enabled": "1", "connected_slaves": "2", "role": "master", "maxmemory_policy": "noeviction", "redis_version": "7.2.11",
				"cluster_state": "ok", "cluster_slots_assigned": "16384", "cluster_slots_fail": "0"}
			v.settings = map[string]string{"appendfsync": "always", "min-replicas-to-write": "1", "min-replicas-max-lag": "10", "cluster-require-full-coverage": "no"}
			v.ahead, v.behind = -time.Millisecond, time.Millisecond
		}
		views[1].told["role"], views[1].told["connected_slaves"] = "slave", "0"
		test.tell(views[0], views[1])
		var said []string
		for _, f := range judgeCluster(views) {
			said = append(said, string(f.Severity)+" "+string(f.Kind)+" at "+f.Subject+": "+f.Text)
		}
		if got := strings.Join(said, "\n"); !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || len(said) > 1 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A queue that moves to a node that was read already, so that no node shows its keys, is examined
// because it's registered. So is its failed queue.
func TestClusterMissedKeys(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := redistest.StartCluster(t, 2, 0)
	servers, err := store.Open(c.URL(), store.Access{})
	is.NoErr(err)
	lines := store.NewLines(servers, logs.New(slog.New(slog.DiscardHandler)), 5*time.Second, time.Second)
	t.Cleanup(lines.Close)
	space := store.SpaceAt(servers, "p")
	conn := c.Dial(t)
	for _, q := range []store.Keys{space.Queue("a"), space.Queue("a").Failed()} {
		redistest.Do(t, conn, "HSET", keyOf(q, "state"), "paused", "1:me")
		redistest.Do(t, conn, "LPUSH", q.Waiting(), "x")
	}
	redistest.Do(t, conn, "SADD", space.Registry(), "a", "unused")
	owner := c.Owner(t, c.Slot(t, "{a}"))
	others := func(ctx context.Context) ([]store.Node, error) {
		all, err := lines.Nodes(ctx)
		return slices.DeleteFunc(all, func(n store.Node) bool { return n.Name == owner.Addr() }), err
	}
	r, _, err := Examine(t.Context(), Config{Runner: lines.Calls, Space: space, Nodes: others, Lease: time.Millisecond})
	is.NoErr(err)
	is.Equal(r.Queues, 1)
	var found []string
	for _, f := range r.Findings {
		if f.Kind == paused {
			found = append(found, f.Queue)
		}
	}
	is.Equal(found, []string{"a", "a (failed)"})
}

// A long list of nodes is cut off.
func TestThose(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{1: "Node a", 2: "Nodes a, b", 5: "Nodes a, b, c, d, e", 7: "Nodes a, b, c, d, e and 2 more"} {
		if got := those(strings.Split("abcdefg"[:n], "")); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}
