package doctor

import (
	"maps"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// Versions are compared only as far as necessary.
func TestVersion(t *testing.T) {
	t.Parallel()
	for v, old := range map[string]bool{"6.2.0": false, "6.2": false, "6.0.16": true, "5": true, "7.0.15": false, "10.1": false, "x": true} {
		is.New(t).Equal(store.IsOlder(v, "6.2"), old)
	}
}

// TestServer checks findings about what Redis reports.
func TestServer(t *testing.T) {
	t.Parallel()
	well := store.Told{"aof_enabled": "1", "connected_slaves": "2", "role": "master", "maxmemory_policy": "noeviction"}
	safe := map[string]string{"appendfsync": "always", "save": "", "min-replicas-to-write": "1", "min-replicas-max-lag": "10"}
	for name, test := range map[string]struct {
		told     store.Told
		settings map[string]string
		want     string
	}{
		"well":                   {},
		"too old":                {told: store.Told{"redis_version": "6.0.9"}, want: "lost redis-version"},
		"evicts tasks":           {told: store.Told{"maxmemory_policy": "allkeys-lru"}, want: "risk eviction-policy"},
		"evicts what expires":    {told: store.Told{"maxmemory_policy": "volatile-ttl"}, want: "risk eviction-policy"},
		"nearly full":            {told: store.Told{"maxmemory": "100", "used_memory": "90"}, want: "risk memory"},
		"not nearly full":        {told: store.Told{"maxmemory": "100", "used_memory": "89"}},
		"nothing is kept":        {told: store.Told{"aof_enabled": "0"}, want: "risk persistence"},
		"snapshots only":         {told: store.Told{"aof_enabled": "0"}, settings: map[string]string{"save": "60 1"}, want: "risk persistence"},
		"a second may go":        {settings: map[string]string{"appendfsync": "everysec"}, want: "notice persistence"},
		"half a minute may go":   {settings: map[string]string{"appendfsync": "no"}, want: "risk persistence"},
		"its log is not written": {told: store.Told{"aof_last_write_status": "err"}, want: "risk persistence"},
		"writes are refused":     {told: store.Told{"rdb_last_bgsave_status": "err"}, settings: map[string]string{"save": "60 1", "stop-writes-on-bgsave-error": "yes"}, want: "lost persistence: refuses all writes"},
		"full":                   {told: store.Told{"maxmemory": "100", "used_memory": "101", "maxmemory_policy": "noeviction"}, want: "lost full: refuses new tasks"},
		"no snapshot is written": {told: store.Told{"rdb_last_bgsave_status": "err"}, want: "risk persistence"},
		"a replica":              {told: store.Told{"role": "slave"}, want: "lost replication"},
		"without a replica":      {told: store.Told{"connected_slaves": "0"}, settings: map[string]string{"min-replicas-to-write": "0"}, want: "notice replication"},
		"whatever its lag":       {settings: map[string]string{"min-replicas-max-lag": "0"}, want: "notice replication"},
		"without waiting for it": {settings: map[string]string{"min-replicas-to-write": "0"}, want: "notice replication: limit the loss to the last 3 s"},
		"with one replica": {told: store.Told{"connected_slaves": "1"}, settings: map[string]string{"min-replicas-to-write": "0"},
			want: "notice replication: add a second replica"},
		"one replica is needed":       {told: store.Told{"connected_slaves": "1"}, want: "notice replication: when it loses one"},
		"it lacks replicas":           {told: store.Told{"connected_slaves": "0"}, want: "lost replication: Redis refuses writes: it has 0 replicas, and min-replicas-to-write is 1"},
		"its settings are unknown":    {settings: map[string]string{"min-replicas-to-write": ""}},
		"a copy comes late":           {settings: map[string]string{"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "5"}, want: "notice replication: repl-diskless-sync-delay is 5"},
		"a copy comes by the disk":    {settings: map[string]string{"repl-diskless-sync": "no", "repl-diskless-sync-delay": "5"}},
		"a copy comes at once":        {settings: map[string]string{"repl-diskless-sync": "yes", "repl-diskless-sync-delay": "0"}},
		"replicas copy what is lost":  {told: store.Told{"aof_enabled": "0"}, want: "risk persistence: its replicas lose their data, too"},
		"replicas copy old snapshots": {told: store.Told{"aof_enabled": "0"}, settings: map[string]string{"save": "60 1"}, want: "risk persistence: its replicas lose their data, too"},
		"no replica copies the loss":  {told: store.Told{"aof_enabled": "0", "connected_slaves": "0"}, settings: map[string]string{"min-replicas-to-write": "0"}, want: "risk persistence: all tasks are lost. Set appendonly, notice replication"},
	} {
		told, settings := maps.Clone(well), maps.Clone(safe)
		maps.Copy(told, test.told)
		maps.Copy(settings, test.settings)
		if settings["min-replicas-to-write"] == "" {
			delete(settings, "min-replicas-to-write") // the user may not read it
		}
		var wanted []string
		if test.want != "" {
			wanted = strings.Split(test.want, ", notice")
		}
		found := judgeServer(told, settings, false)
		well := len(found) == len(wanted)
		for i := range min(len(found), len(wanted)) {
			kind, text, _ := strings.Cut(wanted[i], ": ")
			well = well && strings.HasSuffix(string(found[i].Severity)+" "+string(found[i].Kind), strings.TrimSpace(kind)) && strings.Contains(found[i].Text, text)
		}
		if !well {
			t.Errorf("%s: %v", name, found)
		}
	}
}
