package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
	"github.com/worqr/worqr/internal/words"
)

const drift = time.Second // a clock difference that people notice

// A view is what a server reports about itself.
type view struct {
	node     store.Node
	behind   time.Duration // upper bound of its clock minus this machine's
	ahead    time.Duration // lower bound; the call doesn't show when the clock was read
	told     store.Told
	settings map[string]string
	found    findings // findings about what it doesn't report
	err      error
}

func (c *checkup) look(node store.Node) *view {
	v := &view{node: node, told: store.Told{}, settings: map[string]string{}}
	if v.err = v.clock(c.ctx); v.err != nil {
		return v
	}
	v.err = cmp.Or(v.info(c.ctx), v.config(c.ctx, c.settings()), c.lookAround(v))
	return v
}

// clock compares Redis's clock with this machine's.
func (v *view) clock(ctx context.Context) error {
	before := time.Now()
	now, err := store.Now(ctx, v.node)
	if err != nil {
		return err
	}
	after, theirs := time.Now(), time.UnixMilli(now)
	v.behind, v.ahead = theirs.Sub(before), theirs.Sub(after)
	return nil
}

func (v *view) info(ctx context.Context) error {
	sections := []string{"server", "memory", "persistence", "replication"}
	for i, err := range v.told.Tell(ctx, v.node, sections...) {
		if store.IsAnswer(err) {
			v.found.tell(notPermitted, inspect.SeverityNotice, fmt.Sprintf("INFO %s couldn't be read (%s), so it wasn't checked.", sections[i], words.Shown(err.Error())))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (v *view) config(ctx context.Context, names []string) error {
	for _, name := range names {
		value, ok, err := store.Setting(ctx, v.node, name)
		if store.IsAnswer(err) {
			v.found.tell(notPermitted, inspect.SeverityNotice, fmt.Sprintf("CONFIG GET couldn't be run (%s), so persistence and replication were only partly checked.", words.Shown(err.Error())))
			break
		}
		if err != nil {
			return err
		}
		if ok {
			v.settings[name] = value
		}
	}
	return nil
}

// judge returns findings about what a server reports.
func (v *view) judge(lease time.Duration) []inspect.Finding {
	var all findings
	all.clock(v)
	all.answered(v.behind-v.ahead, lease)
	return slices.Concat(all, v.found, judgeServer(v.told, v.settings, v.node.Replica))
}

// judgeServer returns findings about what Redis reports about itself and its settings. replica
// reports whether it is meant to be one.
func judgeServer(told store.Told, settings map[string]string, replica bool) []inspect.Finding {
	var all findings
	all.version(told)
	all.memory(told.Policy())
	all.persistence(told, settings)
	if replica {
		all.follows(told)
	} else {
		all.replication(told, settings)
	}
	if replica || number(told["connected_slaves"]) > 0 {
		all.delay(settings)
	}
	return all
}

// clock reports a clock difference that people notice, unless the duration of the call could
// explain it.
func (all *findings) clock(v *view) {
	if ahead := max(v.ahead, -v.behind); ahead > drift {
		all.add(about(clock, inspect.SeverityRisk, 0, fmt.Sprintf("They differ by %v.", ahead.Round(time.Millisecond))))
	}
}

func (all *findings) version(told store.Told) {
	if v := told["redis_version"]; v != "" && store.IsOlder(v, store.Oldest) {
		all.tell(version, inspect.SeverityLost, fmt.Sprintf("Redis is %s, and lacks commands that worqr needs. Use %s or later.", words.Shown(v), store.Oldest))
	}
}

func (all *findings) persistence(told store.Told, settings map[string]string) {
	appends, known := told["aof_enabled"]
	if !known {
		return // the finding for that exists
	}
	saves, asked := settings["save"]
	switch {
	case appends == "0" && asked && saves == "":
		all.tell(persistence, inspect.SeverityRisk, "Persistence is off: if Redis stops, all tasks are lost."+copied(told)+" Set appendonly yes.")
	case appends == "0":
		all.tell(persistence, inspect.SeverityRisk, "Redis persists only snapshots: if it crashes, everything since the last one is lost."+copied(told)+" Set appendonly yes.")
	case settings["appendfsync"] == "everysec":
		all.tell(persistence, inspect.SeverityNotice, "appendfsync is everysec: if Redis's machine fails, the last second or two of acknowledged writes are lost. appendfsync always loses none.")
	case settings["appendfsync"] == "no":
		all.tell(persistence, inspect.SeverityRisk, "appendfsync is no: if Redis's machine fails, up to half a minute of acknowledged writes may be lost. Set appendfsync everysec or always.")
	}
	if s := told["aof_last_write_status"]; appends == "1" && s != "" && s != "ok" {
		all.tell(persistence, inspect.SeverityRisk, "Redis couldn't write its append-only file. Check its disk.")
	}
	switch s := told["rdb_last_bgsave_status"]; {
	case s == "" || s == "ok":
	case settings["stop-writes-on-bgsave-error"] == "yes" && saves != "":
		all.add(inspect.Finding{Kind: persistence, Severity: inspect.SeverityLost, Title: "Redis can't save, and refuses writes",
			Text: "Redis couldn't write its last snapshot, so it refuses all writes. Look at its disk and memory."})
	default:
		all.tell(persistence, inspect.SeverityRisk, "Redis couldn't write its last snapshot, and may refuse all writes. Look at its disk and memory.")
	}
}

// copied describes what a master that has lost data does to its replicas.
func copied(told store.Told) string {
	if number(told["connected_slaves"]) == 0 {
		return ""
	}
	return " If it restarts before a replica is promoted, its replicas lose their data, too: they copy whatever it has then."
}

func (all *findings) replication(told store.Told, settings map[string]string) {
	replicas, wanted := number(told["connected_slaves"]), number(settings["min-replicas-to-write"])
	if settings["min-replicas-max-lag"] == "0" {
		wanted = 0 // Redis doesn't require any
	}
	switch _, asked := settings["min-replicas-to-write"]; {
	case told["role"] == "slave":
		all.add(inspect.Finding{Kind: replication, Severity: inspect.SeverityLost, Title: "This Redis is a replica",
			Text: "This Redis is a replica; writes to it are refused or lost. Connect to the master."})
	case told["connected_slaves"] == "":
	case wanted > replicas:
		all.add(inspect.Finding{Kind: replication, Severity: inspect.SeverityLost, Title: "Redis refuses writes", Text: fmt.Sprintf(
			"Redis refuses writes: it has %s, and min-replicas-to-write is %d. Start the replicas that are missing, or lower the number.", words.Counted(replicas, "replica"), wanted)})
	case replicas == 0:
		all.tell(replication, inspect.SeverityNotice, "Redis has no replica: while it's down, no tasks can be enqueued or started.")
	case wanted == replicas:
		all.tell(replication, inspect.SeverityNotice, fmt.Sprintf("min-replicas-to-write is %d, and Redis has no more replicas than that: when it loses one, for example in a failover, it refuses writes. Add a replica, or accept that.", wanted))
	case asked && wanted == 0 && replicas == 1:
		all.tell(replication, inspect.SeverityNotice, "Redis acknowledges writes before its replica has them, so a failover may lose the latest. To limit the loss to the last 3 s, add a second replica, and set min-replicas-to-write 1 and min-replicas-max-lag 3 on every server. With a single replica, they would stop all writes whenever it's down, and after each failover.")
	case asked && wanted == 0:
		all.tell(replication, inspect.SeverityNotice, "Redis acknowledges writes before a replica has them, so a failover may lose the latest. Set min-replicas-to-write 1 and min-replicas-max-lag 3 on every server to limit the loss to the last 3 s.")
	}
}

// delay reports that replicas get their copy late. It applies to servers that take part in
// failovers.
func (all *findings) delay(settings map[string]string) {
	if d := number(settings["repl-diskless-sync-delay"]); d > 0 && settings["repl-diskless-sync"] != "no" {
		all.tell(replication, inspect.SeverityNotice, fmt.Sprintf("repl-diskless-sync-delay is %d: a replica that needs a full copy of a new master waits for %d s. Until it has one it can't be promoted, and with min-replicas-to-write the master may refuse writes. Set it to 0 on every server.", d, d))
	}
}

// number parses a number from Redis; invalid text is 0.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// follows checks a server that is meant to be a replica.
func (all *findings) follows(told store.Told) {
	if told["master_link_status"] == "down" {
		all.tell(replication, inspect.SeverityRisk, "This replica has lost its master, so a failover to it would lose tasks. Look at its log.")
	}
}
