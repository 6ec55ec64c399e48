package main

// measureWaiting measures the memory that Redis needs per waiting task.
func measureWaiting(t *trial) sample { return measureMemory(t, func() {}) }

// measureRunning measures the memory that Redis needs per held task.
func measureRunning(t *trial) sample { return measureMemory(t, func() { t.hold(t, t.N) }) }

// measureMemory measures how much more memory Redis needs for n tasks than for none, without the
// buffers of connections and the sources of scripts.
func measureMemory(t *trial, then func()) sample {
	used := t.during(func() {
		preload(t, t.N)
		then()
	})
	return sample{"bytes": used.memory / float64(t.N)}
}
