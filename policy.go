package worqr

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

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

// errOld is why a worker does not start on a Redis without the commands of the scripts:
// it would be a member, start nothing, and give nothing back.
var errOld = errors.New("worqr: Redis is too old")

// checkRedis fails with ErrEvictionPolicy where Redis would evict tasks, and with errOld where
// it is too old. It warns where it would evict once it had a bound, or would evict what
// has a TTL. What it may not ask it takes to be well: a peer must not need more rights
// than its work does.
func (p *Peer) checkRedis(ctx context.Context) error {
	told := map[string]string{}
	replies := p.calls.Do(ctx, infoCall("memory"), infoCall("server")) // as one takes several since Redis 7
	for i, what := range []string{"the eviction policy", "the version of Redis"} {
		if err := readInfo(replies[i], told); err != nil {
			p.log.Debug("worqr: "+what+" cannot be read", "err", err)
		}
	}
	// Others than Redis say for which version of it they stand, or what they like.
	if v := told["redis_version"]; v != "" && unicode.IsDigit(rune(v[0])) && older(v, oldest) {
		return fmt.Errorf("%w: it is %s, and lacks commands that are used here; use %s or later", errOld, v, oldest)
	}
	switch m := policyOf(told); {
	case m.evictsLists() && m.maximum > 0:
		return fmt.Errorf("%w: its maxmemory-policy is %s and its maxmemory %d bytes, so tasks would be lost as soon as it is full; set maxmemory-policy to noeviction",
			ErrEvictionPolicy, m.name, m.maximum)
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
func (p *Peer) info(ctx context.Context, section string, into map[string]string) error {
	v, err := p.calls.One(ctx, infoCall(section))
	return readInfo(redisconn.Reply{Value: v, Err: err}, into)
}

func infoCall(section string) redisconn.Call { return redisconn.Command("INFO", section) }

func readInfo(reply redisconn.Reply, into map[string]string) error {
	text, err := redis.String(reply.Value, reply.Err)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			into[name] = value
		}
	}
	return err
}
