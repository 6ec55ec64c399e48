package worqr

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// A policy is what Redis does when its memory is full.
type policy struct {
	name    string // maxmemory-policy; "" if it is not told
	used    int64  // bytes
	maximum int64  // bytes; 0 is no bound
}

// policyOf reads the answer to INFO memory.
func policyOf(info map[string]string) policy {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(info[name], 10, 64) // what is not told is 0
		return n
	}
	return policy{info["maxmemory_policy"], number("used_memory"), number("maxmemory")}
}

// evictsLists reports whether any key may go.
func (p policy) evictsLists() bool { return strings.HasPrefix(p.name, "allkeys-") }

// evictsExpiring reports whether keys with a TTL may go.
func (p policy) evictsExpiring() bool { return strings.HasPrefix(p.name, "volatile-") }

// checkPolicy fails with ErrPolicy where Redis would evict tasks. It warns where
// it would once it had a bound, or would evict what has a TTL. Where it may not
// ask, it says nothing: a peer must not need more rights than its work does.
func (p *Peer) checkPolicy(ctx context.Context) error {
	info, err := p.info(ctx, p.control, "memory")
	if err != nil {
		p.log.Debug("worqr: the eviction policy cannot be read", "err", err)
		return nil
	}
	switch m := policyOf(info); {
	case m.evictsLists() && m.maximum > 0:
		return fmt.Errorf("%w: its maxmemory-policy is %s and its maxmemory %d bytes, so tasks would be lost as soon as it is full; set maxmemory-policy to noeviction",
			ErrPolicy, m.name, m.maximum)
	case m.evictsLists():
		p.warnPolicy("worqr: with a maxmemory, Redis would evict tasks; set maxmemory-policy to noeviction", m)
	case m.evictsExpiring():
		p.warnPolicy("worqr: a full Redis may evict registrations, nonces and the records of cancels; set maxmemory-policy to noeviction", m)
	}
	return nil
}

// warnPolicy warns once for each peer.
func (p *Peer) warnPolicy(what string, m policy) {
	p.warned.Do(func() { p.log.Warn(what, "maxmemory-policy", m.name, "maxmemory", m.maximum) })
}

// info reads one section of what Redis tells of itself.
func (p *Peer) info(ctx context.Context, l *redisconn.Line, section string) (map[string]string, error) {
	text, err := redis.String(l.One(ctx, redisconn.Command("INFO", section)))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}
