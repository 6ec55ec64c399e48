package main

// measureWaiting tells what Redis needs for each task that waits.
func measureWaiting(t *trial) sample { return measureMemory(t, func() {}) }

// measureRunning tells what Redis needs for each task that is held.
func measureRunning(t *trial) sample { return measureMemory(t, func() { t.hold(t, t.N) }) }

// measureMemory tells what Redis needs for n tasks more than for none, without
// the buffers of connections and the texts of scripts.
func measureMemory(t *trial, then func()) sample {
	used := t.during(func() {
		preload(t, t.N)
		then()
	})
	return sample{"bytes": used.memory / float64(t.N)}
}
