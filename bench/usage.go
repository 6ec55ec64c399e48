package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A meter reads the usage of the server and of this process.
type meter struct {
	t    testing.TB
	conn redis.Conn
}

func newMeter(t testing.TB, url string) *meter { return &meter{t, redistest.Dial(t, url)} }

// ping measures a command that does nothing.
func (m *meter) ping() time.Duration {
	before := time.Now()
	redistest.Do(m.t, m.conn, "PING")
	return time.Since(before)
}

// usage is the total usage up to a moment, or the usage between two.
type usage struct {
	seconds  float64
	server   float64 // µs of CPU time
	client   float64
	commands float64 // of Redis, including those called by scripts
	reads    float64 // from sockets by Redis: slightly fewer than requests
	memory   float64 // bytes of data
}

func (m *meter) read() usage {
	info := map[string]float64{}
	for line := range strings.Lines(redistest.Sure(redis.String(m.conn.Do("INFO")))(m.t)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			info[name] = n
		}
	}
	var self syscall.Rusage
	redistest.Must(m.t, syscall.Getrusage(syscall.RUSAGE_SELF, &self))
	return usage{
		seconds:  time.Since(epoch).Seconds(),
		server:   1e6 * (info["used_cpu_user"] + info["used_cpu_sys"]),
		client:   float64(self.Utime.Nano()+self.Stime.Nano()) / 1e3,
		commands: info["total_commands_processed"],
		reads:    info["total_reads_processed"],
		memory:   info["used_memory"] - info["mem_clients_normal"] - info["used_memory_scripts"],
	}
}

var epoch = time.Now()

// since returns the usage since then, without the reading itself.
func (u usage) since(then usage) usage {
	return usage{
		seconds:  u.seconds - then.seconds,
		server:   u.server - then.server,
		client:   u.client - then.client,
		commands: u.commands - then.commands - 1,
		reads:    u.reads - then.reads - 1,
		memory:   u.memory - then.memory,
	}
}

// perTask returns the usage per task, for n tasks.
func (u usage) perTask(n int) sample {
	d := float64(n)
	return sample{
		"tasks/s":   d / u.seconds,
		"server µs": u.server / d, "client µs": u.client / d,
		"commands": u.commands / d, "requests": u.reads / d,
	}
}

// perSecond returns the usage per second.
func (u usage) perSecond() sample {
	return sample{
		"commands/s": u.commands / u.seconds, "requests/s": u.reads / u.seconds,
		"server %": u.server / u.seconds / 1e4,
	}
}

// during measures what f uses.
func (m *meter) during(f func()) usage {
	before := m.read()
	f()
	return m.read().since(before)
}
