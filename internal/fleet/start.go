package fleet

import (
	"context"
	"errors"
	"fmt"
	"unicode"

	"github.com/worqr/worqr/internal/store"
)

// ErrOld is why a worker does not start on a Redis without the commands of the scripts:
// it would be a member, start nothing, and give nothing back.
var ErrOld = errors.New("worqr: Redis is too old")

// checkRedis fails with ErrEvictionPolicy where Redis would evict tasks, and with ErrOld where
// it is too old. It warns where it would evict once it had a bound, or would evict what
// has a TTL. What it may not ask it takes to be well: a peer must not need more rights
// than its work does.
func (f *Fleet) checkRedis(ctx context.Context) error {
	told := store.Told{}
	errs := told.TellAll(ctx, f.Lines.Calls, "memory", "server")
	for i, what := range []string{"the eviction policy", "the version of Redis"} {
		if errs[i] != nil {
			f.Log.Debug("worqr: "+what+" cannot be read", "err", errs[i])
		}
	}
	// Others than Redis say for which version of it they stand, or what they like.
	if v := told["redis_version"]; v != "" && unicode.IsDigit(rune(v[0])) && store.IsOlder(v, store.Oldest) {
		return fmt.Errorf("%w: version %s lacks commands that worqr needs; use %s or later", ErrOld, v, store.Oldest)
	}
	switch m := told.Policy(); {
	case m.EvictsLists() && m.Maximum > 0:
		return fmt.Errorf("%w: its maxmemory-policy is %s and its maxmemory %d bytes, so tasks would be lost as soon as it is full; set maxmemory-policy to noeviction",
			ErrEvictionPolicy, m.Name, m.Maximum)
	case m.EvictsLists():
		f.warnPolicy("worqr: with a maxmemory, Redis would evict tasks; set maxmemory-policy to noeviction", m)
	case m.EvictsExpiring():
		f.warnPolicy("worqr: a full Redis may evict registrations, nonces and the records of cancels; set maxmemory-policy to noeviction", m)
	}
	return nil
}

// warnPolicy warns once for each peer.
func (f *Fleet) warnPolicy(what string, m store.Policy) {
	f.warned.Do(func() { f.Log.Warn(what, "maxmemory-policy", m.Name, "maxmemory", m.Maximum) })
}
