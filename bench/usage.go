package main

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

// A meter reads what the server and this process have used.
type meter struct{ conn redis.Conn }

func newMeter(url string) (*meter, error) {
	c, err := redis.DialURL(url)
	if err != nil {
		return nil, fmt.Errorf("connect to read statistics: %w", err)
	}
	return &meter{c}, nil
}

// usage is what was used up to a moment, or between two.
type usage struct {
	seconds  float64
	server   float64 // µs of processor time
	client   float64
	commands float64 // of Redis, those included that scripts call
	reads    float64 // of sockets by Redis, which are requests or a little less
	memory   float64 // bytes that the data takes
}

func (m *meter) read() (usage, error) {
	text, err := redis.String(m.conn.Do("INFO"))
	if err != nil {
		return usage{}, fmt.Errorf("read statistics: %w", err)
	}
	info := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			info[name] = n
		}
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return usage{}, fmt.Errorf("read processor time: %w", err)
	}
	return usage{
		seconds:  time.Since(epoch).Seconds(),
		server:   1e6 * (info["used_cpu_user"] + info["used_cpu_sys"]),
		client:   float64(self.Utime.Nano()+self.Stime.Nano()) / 1e3,
		commands: info["total_commands_processed"],
		reads:    info["total_reads_processed"],
		memory:   info["used_memory"] - info["mem_clients_normal"] - info["used_memory_scripts"],
	}, nil
}

var epoch = time.Now()

// since returns what was used from then on, without the reading itself.
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

// perTask returns the usage for each of n tasks.
func (u usage) perTask(n int) map[string]float64 {
	d := float64(n)
	return map[string]float64{
		"tasks/s": d / u.seconds, "wall µs": 1e6 * u.seconds / d,
		"server µs": u.server / d, "client µs": u.client / d,
		"commands": u.commands / d, "requests": u.reads / d,
	}
}

// perSecond returns the usage of each second.
func (u usage) perSecond() map[string]float64 {
	return map[string]float64{
		"commands/s": u.commands / u.seconds, "requests/s": u.reads / u.seconds,
		"server %": u.server / u.seconds / 1e4, "client %": u.client / u.seconds / 1e4,
	}
}

// during measures what f uses.
func (m *meter) during(f func() error) (usage, error) {
	before, err := m.read()
	if err != nil {
		return usage{}, err
	}
	if err := f(); err != nil {
		return usage{}, err
	}
	after, err := m.read()
	return after.since(before), err
}
