package worqr

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/script"
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
			c.notice(FindingUnreadable, SeverityNotice, fmt.Sprintf("INFO %s could not be read (%v), so nothing is known of it.", section, err))
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
			c.notice(FindingUnreadable, SeverityNotice, fmt.Sprintf("CONFIG GET could not be read (%v), so how Redis persists and replicates is known in part.", err))
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
	now, err := script.Now(c.ctx, c.peer.calls)
	if err != nil {
		return err
	}
	after := time.Now()
	theirs := time.UnixMilli(now)
	ahead := max(before.Sub(theirs), theirs.Sub(after))
	if ahead > drift {
		c.notice(FindingClock, SeverityNotice, fmt.Sprintf("The clocks of this machine and of Redis differ by %v. Leases do not depend on it; tasks that are put for a time start by the clock of Redis. Set the clocks.",
			ahead.Round(time.Millisecond)))
	}
	return nil
}

func (c *checkup) version(told map[string]string) {
	if v := told["redis_version"]; v != "" && older(v, oldest) {
		c.notice(FindingVersion, SeverityBroken, fmt.Sprintf("Redis is %s, and lacks commands that are used here. Use %s or later.", v, oldest))
	}
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
		c.notice(FindingPolicy, SeverityDanger, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts tasks.%s Set it to noeviction.", m.name, bound))
	case m.evictsExpiring():
		c.notice(FindingPolicy, SeverityDanger, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts registrations, nonces and records of cancels.%s Set it to noeviction.", m.name, bound))
	}
	if m.maximum > 0 && m.used*100 >= m.maximum*nearFull {
		c.notice(FindingMemory, SeverityDanger, fmt.Sprintf("Redis uses %d of %d bytes. Full, it refuses what is enqueued; what waits is still done. Raise maxmemory, or add workers.", m.used, m.maximum))
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
		c.notice(FindingPersistence, SeverityDanger, "Redis persists nothing: with its process, all tasks are lost. Set appendonly yes.")
	case appends == "0":
		c.notice(FindingPersistence, SeverityDanger, "Redis persists by snapshots: with its process, all since the last one is lost. Set appendonly yes.")
	case settings["appendfsync"] == "everysec":
		c.notice(FindingPersistence, SeverityNotice, "Redis writes its log to disk every second: when its machine fails, a second of what it has acknowledged is lost. With appendfsync always nothing is.")
	case settings["appendfsync"] == "no":
		c.notice(FindingPersistence, SeverityDanger, "Redis leaves it to the system when its log is written to disk: when its machine fails, half a minute of what it has acknowledged may be lost. Set appendfsync everysec or always.")
	}
	if s := told["aof_last_write_status"]; appends == "1" && s != "" && s != "ok" {
		c.notice(FindingPersistence, SeverityDanger, "Redis could not write its log the last time. Look at its disk.")
	}
	if s := told["rdb_last_bgsave_status"]; s != "" && s != "ok" {
		c.notice(FindingPersistence, SeverityDanger, "Redis could not write its last snapshot, and may refuse to write at all. Look at its disk and memory.")
	}
}

func (c *checkup) replication(told, settings map[string]string) {
	replicas := told["connected_slaves"]
	switch {
	case told["role"] == "slave":
		c.notice(FindingReplication, SeverityBroken, "This Redis is a replica, and what is written to it is refused or lost. Connect to the primary.")
	case replicas == "0":
		c.notice(FindingReplication, SeverityNotice, "Redis has no replica: while its machine is down, nothing is done.")
	case replicas != "" && settings["min-replicas-to-write"] == "0":
		c.notice(FindingReplication, SeverityNotice, "Redis acknowledges what no replica has yet: a failover loses the last of it. Set min-replicas-to-write to 1 to bound that.")
	}
}
