package main

import "math"

// A model predicts Redis's total work for a spread queue: a cost for each task, and a cost per
// second for each part of each peer.
type model struct {
	task, part float64 // µs
	off        float64 // the largest relative difference from a point
}

// A point is a measurement: µs of CPU time per second.
type point struct{ tasks, parts, took float64 }

// fitted returns the model with the smallest sum of squared relative differences, or false if the
// points don't determine one.
func fitted(points []point) (m model, ok bool) {
	var aa, ab, bb, a, b float64
	for _, p := range points {
		x, y := p.tasks/p.took, p.parts/p.took
		aa, ab, bb, a, b = aa+x*x, ab+x*y, bb+y*y, a+x, b+y
	}
	d := aa*bb - ab*ab
	if !(d > 1e-12*aa*bb) {
		return m, false
	}
	m = model{task: (a*bb - b*ab) / d, part: (b*aa - a*ab) / d}
	for _, p := range points {
		m.off = max(m.off, math.Abs(m.task*p.tasks+m.part*p.parts-p.took)/p.took)
	}
	return m, true
}

// rate returns how many tasks per second a number of nodes can process, each with its own core.
func (m model) rate(nodes, parts, peers int) float64 {
	return max(1e6*float64(nodes)-m.part*float64(parts*peers), 0) / m.task
}

// points returns the measurements of spread queues in a cluster.
func (r *report) points() (all []point) {
	for _, p := range r.plan {
		for _, s := range p.steps {
			took, ok := r.of(s.cell, "server/s")
			if !ok || s.job.Parts == 0 || s.job.Uneven {
				continue
			}
			tasks, _ := r.of(s.cell, "tasks/s") // zero for an idle queue
			all = append(all, point{tasks.median, float64(s.job.Parts * max(s.job.Peers, 1)), took.median})
		}
	}
	return all
}

// forecast writes predictions for larger clusters.
func (r *report) forecast() {
	points := r.points()
	m, ok := fitted(points)
	if !ok {
		return
	}
	t := table{head: []string{"nodes", "parts", "peers", "tasks/s"}}
	for _, of := range []struct{ nodes, parts, peers int }{
		{1, 4, 1}, {2, 8, 2}, {3, 12, 3}, {10, 40, 10}, {10, 40, 100}, {100, 256, 100}, {100, 256, 1000},
	} {
		t.row(figure(float64(of.nodes)), figure(float64(of.parts)), figure(float64(of.peers)), figure(m.rate(of.nodes, of.parts, of.peers)))
	}
	r.say("Estimates from a model, for nodes with one core each:\n")
	r.say("%s", t)
	r.say("The rate is λ = nodes / (c + b · parts · peers / λ) tasks/s. A task costs c = %s µs, and each part", figure(m.task))
	r.say("of each peer costs b = %s µs/s. The model is fitted to the %d points above, and", figure(m.part), len(points))
	r.say("differs from them by at most %s %%. Nothing larger was measured. The model assumes enough peers", figure(100*m.off))
	r.say("and a fast network.\n")
}
