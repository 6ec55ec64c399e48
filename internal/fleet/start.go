package fleet

import (
	"context"
	"fmt"
	"unicode"

	"github.com/worqr/worqr/internal/store"
)

// checkRedis fails with ErrEvictionPolicy if Redis would evict tasks, with ErrOld if it's too old,
// with store.ErrCluster for a cluster node given as a single server, and with store.ErrPlain for
// the opposite. It warns if Redis would evict tasks once it had a memory limit, or evicts keys with
// a TTL. It assumes that settings it isn't allowed to read are fine: a peer must not need more
// rights than its work does.
func (f *Fleet) checkRedis(ctx context.Context) error {
	told := store.Told{}
	errs := told.Tell(ctx, f.Lines.Calls, "memory", "server", "cluster")
	for i, what := range []string{"the eviction policy", "the version of Redis", "whether Redis is a cluster"} {
		if errs[i] != nil {
			f.Log.Debug("worqr: can't read "+what, "err", errs[i])
		}
	}
	switch inCluster := f.Lines.InCluster(); {
	case told.IsNode() && !inCluster:
		return store.ErrCluster // tasks would be out of reach if their slots are on, or move to, other nodes
	case told.IsPlain() && inCluster:
		return store.ErrPlain // nothing would look for the master, and the scripts differ
	}
	// Other servers report a compatible version of Redis, or anything else.
	if v := told["redis_version"]; v != "" && unicode.IsDigit(rune(v[0])) && store.IsOlder(v, store.Oldest) {
		return fmt.Errorf("%w: version %s lacks commands that worqr needs; use %s or later", ErrOld, v, store.Oldest)
	}
	switch m := told.Policy(); {
	case m.EvictsLists() && m.Maximum > 0:
		return fmt.Errorf("%w: its maxmemory-policy is %s and its maxmemory %d bytes, so tasks would be lost as soon as it is full; set maxmemory-policy to noeviction",
			ErrEvictionPolicy, m.Name, m.Maximum)
	case m.EvictsLists():
		f.warnPolicy("worqr: Redis would evict tasks if maxmemory were set; set maxmemory-policy to noeviction", m)
	case m.EvictsExpiring():
		f.warnPolicy("worqr: a full Redis may evict registrations, nonces and the records of cancels; set maxmemory-policy to noeviction", m)
	}
	return nil
}

// warnPolicy warns once per peer.
func (f *Fleet) warnPolicy(what string, m store.Policy) {
	f.warned.Do(func() { f.Log.Warn(what, "maxmemory-policy", m.Name, "maxmemory", m.Maximum) })
}

// agree fails with store.ErrProtocol if this peer can't work with the fleet's protocol. If the
// user's ACL rules are too old to read it, agree assumes that it can.
func (f *Fleet) agree(ctx context.Context) error {
	err := store.Twice(func() error { return store.Agree(ctx, f.Lines.Calls, f.Space, f.Protocol) })
	if store.IsAnswer(err) {
		f.Log.Debug("worqr: can't read the fleet's protocol", "err", err)
		return nil
	}
	return err
}
