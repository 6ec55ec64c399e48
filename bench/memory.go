package main

// measureWaiting tells what Redis needs for each task that waits.
func measureWaiting(j job, s system, m *meter, say func(sample)) error {
	return measureMemory(j, s, m, say, func(system) error { return nil })
}

// measureRunning tells what Redis needs for each task that is held.
func measureRunning(j job, s system, m *meter, say func(sample)) error {
	return measureMemory(j, s, m, say, func(s system) error { return s.hold(j.N) })
}

// measureMemory tells what Redis needs for n tasks more than for none, without
// the buffers of connections and the texts of scripts.
func measureMemory(j job, s system, m *meter, say func(sample), then func(system) error) error {
	used, err := m.during(func() error {
		if err := preload(s, j.N, j.Size); err != nil {
			return err
		}
		return then(s)
	})
	if err != nil {
		return err
	}
	say(sample{Values: map[string]float64{"bytes": used.memory / float64(j.N)}})
	return nil
}
