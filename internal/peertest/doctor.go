package peertest

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// Around lists the findings about the server, which tests share.
var Around = map[inspect.FindingKind]bool{
	"eviction-policy": true, "persistence": true, "replication": true, "redis-version": true,
	"clock": true, "memory": true, "full": true, "slow-redis": true, "not-permitted": true,
	"full-coverage": true,
}

// Service lists the findings about how tasks run. They aren't damage.
var Service = map[inspect.FindingKind]bool{
	"long-run": true, "stalled": true, "starved": true, "overdue": true, "backlog": true, "retrying": true, "failing": true, "failed": true,
	"stuck-handler": true, "crashing": true, "job-failed": true, "job-late": true, "job-gone": true, "evicted": true, "lost-writes": true, "dropped": true,
}

// damage lists the findings that break an invariant, or say that the server can't be used.
var damage = []inspect.FindingKind{"orphan", "no-payload", "token", "recurring", "inconsistent", "wrong-type", "redis-version", "cluster"}

// Intact reports whether no damage is left.
func Intact(r *inspect.CheckReport) bool {
	return !slices.ContainsFunc(r.Findings, func(f inspect.Finding) bool { return slices.Contains(damage, f.Kind) && !f.Repaired })
}

// Ills returns all other findings.
func Ills(r *inspect.CheckReport) []inspect.Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f inspect.Finding) bool { return Around[f.Kind] || Service[f.Kind] })
}

func Sha(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Canary is part of every planted payload, key and nonce, and of no report.
const Canary = "canary"

const Far = "9007199254740991" // a time that never comes

// Member is a worker whose membership never expires.
var Member = []string{"ZADD p:workers:{q} " + Far + " w1", "HSET p:rounds:{q} w1 1", `HSET p:worker:w1 queues ["q"]`, "SADD p:workers w1", "SADD p:registry q"}

func Count(r *inspect.CheckReport, kind inspect.FindingKind) (n int) {
	for _, f := range r.Findings {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// OpenDoctor returns a peer that may check and repair.
func OpenDoctor(t testing.TB, url string, opts worqr.Options) *worqr.Peer {
	t.Helper()
	return OpenAt(t, redistest.Doctor(t, url, opts.Prefix), opts)
}

// Told returns the state of each copy in an explanation, and why it isn't running.
func Told(e *inspect.Explanation) (all []string) {
	for _, c := range e.Copies {
		s := string(c.State)
		for _, why := range c.Reasons {
			s += " " + string(why)
		}
		all = append(all, s)
	}
	return all
}
