package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/worqr/worqr/internal/store"
)

const (
	drift    = time.Second // of clocks that people notice
	nearFull = 90          // percent of maxmemory
)

// server examines what Redis says of itself.
func (c *checkup) server() error {
	if err := c.clocks(); err != nil {
		return err
	}
	told := store.Told{}
	for _, section := range []string{"server", "memory", "persistence", "replication"} {
		err := told.Tell(c.ctx, c.Runner, section)
		if store.IsRefusal(err) {
			c.notice(unreadable, Notice, fmt.Sprintf("INFO %s could not be read (%s), so it wasn't checked.", section, Shown(err.Error())))
			continue
		}
		if err != nil {
			return err
		}
	}
	settings := map[string]string{}
	for _, name := range []string{"appendfsync", "save", "min-replicas-to-write"} {
		value, ok, err := store.Setting(c.ctx, c.Runner, name)
		if store.IsRefusal(err) {
			c.notice(unreadable, Notice, fmt.Sprintf("CONFIG GET could not be read (%s), so persistence and replication were only partly checked.", Shown(err.Error())))
			break
		}
		if err != nil {
			return err
		}
		if ok {
			settings[name] = value
		}
	}
	for _, f := range judgeServer(told, settings) {
		c.found(f)
	}
	return nil
}

// judgeServer finds what endangers tasks, from what Redis tells of itself and of its
// settings.
func judgeServer(told store.Told, settings map[string]string) []Finding {
	var all findings
	all.version(told)
	all.holes(told)
	all.memory(told.Policy())
	all.persistence(told, settings)
	all.replication(told, settings)
	return all
}

// findings are those about the server.
type findings []Finding

func (all *findings) notice(kind Kind, severity Severity, text string) {
	*all = append(*all, Finding{Kind: kind, Severity: severity, Text: text})
}

func (c *checkup) notice(kind Kind, severity Severity, text string) {
	c.found(Finding{Kind: kind, Severity: severity, Text: text})
}

// clocks compares the clocks. Within the time that the call took, it cannot tell.
func (c *checkup) clocks() error {
	before := time.Now()
	now, err := store.Now(c.ctx, c.Runner)
	if err != nil {
		return err
	}
	c.now = now
	after := time.Now()
	theirs := time.UnixMilli(now)
	ahead := max(before.Sub(theirs), theirs.Sub(after))
	if ahead > drift {
		c.notice(clock, Notice, fmt.Sprintf("The clocks of this machine and of Redis differ by %v. Leases do not depend on it; scheduled tasks start by Redis's clock. Synchronize the clocks.",
			ahead.Round(time.Millisecond)))
	}
	return nil
}

func (all *findings) version(told store.Told) {
	if v := told["redis_version"]; v != "" && store.IsOlder(v, store.Oldest) {
		all.notice(version, Error, fmt.Sprintf("Redis is %s, and lacks commands that worqr needs. Use %s or later.", Shown(v), store.Oldest))
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
func (all *findings) holes(told store.Told) {
	v := told["redis_version"]
	branch := strings.Join(strings.SplitN(v+"..", ".", 3)[:2], ".")
	least, known := patched[branch]
	if !known || told["server_name"] != "" && told["server_name"] != "redis" || told["valkey_version"] != "" {
		return
	}
	to := "a patched version, such as 7.2.11 or 7.4.6"
	if least != "" {
		to = least + " or later"
	}
	to = fmt.Sprintf(" Upgrade to %s, unless your distribution has patched this one.", to)
	switch first := overflow[branch]; {
	case first != "" && store.IsOlder(v, first):
		all.notice(vulnerable, Warning, fmt.Sprintf("Redis %s has a heap overflow in the JSON library of its scripts (CVE-2022-24834), and other vulnerabilities in its scripting.", Shown(v))+to)
	case least == "" || store.IsOlder(v, least):
		all.notice(vulnerable, Notice, fmt.Sprintf("Redis %s has known vulnerabilities in its scripting (such as CVE-2025-49844): anyone who may run scripts can take over the server.", Shown(v))+to)
	}
}

func (all *findings) memory(m store.Policy) {
	bound := ""
	if m.Maximum == 0 {
		bound = " There is no maxmemory yet, so nothing is evicted so far."
	}
	switch {
	case m.EvictsLists():
		all.notice(policy, Warning, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts tasks.%s Set it to noeviction.", Shown(m.Name), bound))
	case m.EvictsExpiring():
		all.notice(policy, Warning, fmt.Sprintf("The maxmemory-policy is %s: a full Redis evicts registrations, nonces and records of cancels.%s Set it to noeviction.", Shown(m.Name), bound))
	}
	if m.Maximum > 0 && m.Used*100 >= m.Maximum*nearFull {
		all.notice(memory, Warning, fmt.Sprintf("Redis uses %d of %d bytes. When it's full, it refuses new tasks; waiting tasks still run. Raise maxmemory, or add workers.", m.Used, m.Maximum))
	}
}

func (all *findings) persistence(told store.Told, settings map[string]string) {
	appends, known := told["aof_enabled"]
	if !known {
		return // that it cannot be read was said
	}
	saves, asked := settings["save"]
	switch {
	case appends == "0" && asked && saves == "":
		all.notice(persistence, Warning, "Persistence is off: if Redis stops, all tasks are lost. Set appendonly yes.")
	case appends == "0":
		all.notice(persistence, Warning, "Redis persists only snapshots: if it crashes, everything since the last one is lost. Set appendonly yes.")
	case settings["appendfsync"] == "everysec":
		all.notice(persistence, Notice, "appendfsync is everysec: if the machine of Redis fails, the last second or two of acknowledged writes are lost. appendfsync always loses none.")
	case settings["appendfsync"] == "no":
		all.notice(persistence, Warning, "appendfsync is no: if the machine of Redis fails, up to half a minute of acknowledged writes may be lost. Set appendfsync everysec or always.")
	}
	if s := told["aof_last_write_status"]; appends == "1" && s != "" && s != "ok" {
		all.notice(persistence, Warning, "Redis could not write its append-only file. Check its disk.")
	}
	if s := told["rdb_last_bgsave_status"]; s != "" && s != "ok" {
		all.notice(persistence, Warning, "Redis could not write its last snapshot, and may refuse to write at all. Look at its disk and memory.")
	}
}

func (all *findings) replication(told store.Told, settings map[string]string) {
	replicas := told["connected_slaves"]
	switch {
	case told["role"] == "slave":
		all.notice(replication, Error, "This Redis is a replica; writes to it are refused or lost. Connect to the primary.")
	case replicas == "0":
		all.notice(replication, Notice, "Redis has no replica: while it's down, no tasks can be enqueued or started.")
	case replicas != "" && settings["min-replicas-to-write"] == "0":
		all.notice(replication, Notice, "Redis acknowledges writes before a replica has them, so a failover may lose the latest. Set min-replicas-to-write to 1 to limit the loss.")
	}
}
