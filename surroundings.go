package worqr

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/store"
)

const (
	oldest   = "6.2"       // of Redis
	drift    = time.Second // of clocks that people notice
	nearFull = 90          // percent of maxmemory
)

// server examines what Redis says of itself.
func (c *checkup) server() error {
	if err := c.clock(); err != nil {
		return err
	}
	told := map[string]string{}
	for _, section := range []string{"server", "memory", "persistence", "replication"} {
		err := c.peer.info(c.ctx, section, told)
		if _, refused := err.(redis.Error); refused {
			c.notice(findingUnreadable, SeverityNotice, fmt.Sprintf("INFO %s could not be read (%s), so nothing is known of it.", section, shown(err.Error())))
			continue
		}
		if err != nil {
			return err
		}
	}
	settings := map[string]string{}
	for _, name := range []string{"appendfsync", "save", "min-replicas-to-write"} {
		pair, err := redis.Strings(c.peer.calls.One(c.ctx, redisconn.Command("CONFIG", "GET", name)))
		if _, refused := err.(redis.Error); refused {
			c.notice(findingUnreadable, SeverityNotice, fmt.Sprintf("CONFIG GET could not be read (%s), so how Redis persists and replicates is known in part.", shown(err.Error())))
			break
		}
		if err != nil {
			return err
		}
		if len(pair) == 2 {
			settings[name] = pair[1]
		}
	}
	c.version(told)
	if f, found := holes(told); found {
		c.found(f)
	}
	c.memory(policyOf(told))
	c.persistence(told, settings)
	c.replication(told, settings)
	return nil
}

func (c *checkup) notice(kind FindingKind, severity Severity, text string) {
	c.found(Finding{Kind: kind, Severity: severity, Text: text})
}

// clock compares the clocks. Within the time that the call took, it cannot tell.
func (c *checkup) clock() error {
	before := time.Now()
	now, err := store.Now(c.ctx, c.peer.calls)
	if err != nil {
		return err
	}
	c.now = now
	after := time.Now()
	theirs := time.UnixMilli(now)
	ahead := max(before.Sub(theirs), theirs.Sub(after))
	if ahead > drift {
		c.notice(findingClock, SeverityNotice, fmt.Sprintf("The clocks of this machine and of Redis differ by %v. Leases do not depend on it; tasks that are put for a time start by the clock of Redis. Set the clocks.",
			ahead.Round(time.Millisecond)))
	}
	return nil
}

func (c *checkup) version(told map[string]string) {
	if v := told["redis_version"]; v != "" && older(v, oldest) {
		c.notice(findingVersion, SeverityError, fmt.Sprintf("Redis is %s, and lacks commands that are used here. Use %s or later.", shown(v), oldest))
	}
}

// patched are the versions of Redis from which on a branch has no known hole in its
// scripting: CVE-2022-24834, CVE-2024-31449, CVE-2024-46981 and CVE-2025-49844 among
// them. The branches 7.0 and older ones than 6.2 have no such version.
var patched = map[string]string{"6.2": "6.2.20", "7.0": "", "7.2": "7.2.11", "7.4": "7.4.6", "8.0": "8.0.4", "8.2": "8.2.2"}

// overflow are the versions from which on a branch's cjson, which scripts use here, does
// not overflow with large strings (CVE-2022-24834). Later branches never did.
var overflow = map[string]string{"6.2": "6.2.13", "7.0": "7.0.12"}

// holes reports what is known to be wrong with the scripting of a version of Redis. Other
// servers that speak its protocol have versions of their own.
func holes(told map[string]string) (f Finding, found bool) {
	v := told["redis_version"]
	branch := strings.Join(strings.SplitN(v+"..", ".", 3)[:2], ".")
	least, known := patched[branch]
	if !known || told["server_name"] != "" && told["server_name"] != "redis" || told["valkey_version"] != "" {
		return f, false
	}
	f = Finding{Kind: findingVulnerable, Severity: SeverityNotice}
	to := "a branch that is, such as 7.2.11 or 7.4.6"
	if least != "" {
		to = least + " or later"
	}
	switch first := overflow[branch]; {
	case first != "" && older(v, first):
		f.Severity = SeverityWarning
		f.Text = fmt.Sprintf("Redis %s has a heap overflow in the JSON library of its scripts (CVE-2022-24834), and others in its scripting.", shown(v))
	case least == "" || older(v, least):
		f.Text = fmt.Sprintf("Redis %s isn't patched against all known holes in its scripting (CVE-2025-49844): who may run scripts may take it over.", shown(v))
	default:
		return Finding{}, false
	}
	f.Text += fmt.Sprintf(" Upgrade to %s, unless your distribution has patched this one.", to)
	return f, true
}

// older compares versions as far as the second has parts.
func older(v, than string) bool {
	parts := strings.Split(v, ".")
	for i, want := range strings.Split(than, ".") {
		has, least := 0, 0
		if i < len(parts) {
			has, _ = strconv.Atoi(parts[i]) // what is no number is as old as can be
		}
		least, _ = strconv.Atoi(want)
		if has != least {
			return has < least
		}
	}
	return false
}

func (c *checkup) memory(m policy) {
	bound := ""
	if m.maximum == 0 {
		bound = " There is no maxmemory yet, so nothing is evicted so far."
	}
	switch {
	case m.evictsLists():
		c.notice(findingPolicy, SeverityWarning, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts tasks.%s Set it to noeviction.", shown(m.name), bound))
	case m.evictsExpiring():
		c.notice(findingPolicy, SeverityWarning, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts registrations, nonces and records of cancels.%s Set it to noeviction.", shown(m.name), bound))
	}
	if m.maximum > 0 && m.used*100 >= m.maximum*nearFull {
		c.notice(findingMemory, SeverityWarning, fmt.Sprintf("Redis uses %d of %d bytes. Full, it refuses what is enqueued; what waits is still done. Raise maxmemory, or add workers.", m.used, m.maximum))
	}
}

func (c *checkup) persistence(told, settings map[string]string) {
	appends, known := told["aof_enabled"]
	if !known {
		return // that it cannot be read was said
	}
	saves, asked := settings["save"]
	switch {
	case appends == "0" && asked && saves == "":
		c.notice(findingPersistence, SeverityWarning, "Persistence is off: if Redis stops, all tasks are lost. Set appendonly yes.")
	case appends == "0":
		c.notice(findingPersistence, SeverityWarning, "Redis persists only snapshots: if it crashes, everything since the last one is lost. Set appendonly yes.")
	case settings["appendfsync"] == "everysec":
		c.notice(findingPersistence, SeverityNotice, "appendfsync is everysec: if the machine of Redis fails, a second of acknowledged writes is lost. With appendfsync always nothing is.")
	case settings["appendfsync"] == "no":
		c.notice(findingPersistence, SeverityWarning, "appendfsync is no: if the machine of Redis fails, half a minute of acknowledged writes may be lost. Set appendfsync everysec or always.")
	}
	if s := told["aof_last_write_status"]; appends == "1" && s != "" && s != "ok" {
		c.notice(findingPersistence, SeverityWarning, "Redis could not write its log the last time. Look at its disk.")
	}
	if s := told["rdb_last_bgsave_status"]; s != "" && s != "ok" {
		c.notice(findingPersistence, SeverityWarning, "Redis could not write its last snapshot, and may refuse to write at all. Look at its disk and memory.")
	}
}

func (c *checkup) replication(told, settings map[string]string) {
	replicas := told["connected_slaves"]
	switch {
	case told["role"] == "slave":
		c.notice(findingReplication, SeverityError, "This Redis is a replica, and what is written to it is refused or lost. Connect to the primary.")
	case replicas == "0":
		c.notice(findingReplication, SeverityNotice, "Redis has no replica: while its machine is down, nothing is done.")
	case replicas != "" && settings["min-replicas-to-write"] == "0":
		c.notice(findingReplication, SeverityNotice, "Redis acknowledges what no replica has yet: a failover loses the last of it. Set min-replicas-to-write to 1 to bound that.")
	}
}
