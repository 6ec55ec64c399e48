package main

// measureWaiting measures how much more memory Redis needs for n waiting tasks than for none, without the
// buffers of connections and the sources of scripts.
func measureWaiting(t *trial) sample {
	used := t.during(func() { preload(t, t.N) })
	return sample{"bytes": used.memory / float64(t.N)}
}
