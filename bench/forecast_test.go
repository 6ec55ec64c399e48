package main

import (
	"math"
	"testing"
)

// The model goes through points that agree with it, and reports how far off others are.
func TestFitted(t *testing.T) {
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-6*math.Abs(b) }
	of := func(tasks, parts float64) point { return point{tasks, parts, 4*tasks + 30*parts} }
	points := []point{of(100_000, 4), of(180_000, 8), of(0, 12), of(0, 96)}
	m, ok := fitted(points)
	if !ok || !near(m.task, 4) || !near(m.part, 30) || m.off > 1e-6 {
		t.Errorf("%+v", m)
	}
	if rate := m.rate(2, 10, 100); !near(rate, (2e6-30_000)/4) {
		t.Errorf("the rate is %v", rate)
	}
	if rate := m.rate(1, 256, 1000); rate != 0 {
		t.Errorf("a server that has no time for tasks does %v", rate)
	}
	points[0].took *= 1.2
	if m, _ := fitted(points); m.off < 0.05 || m.off > 0.2 {
		t.Errorf("a point that is off by a fifth: %+v", m)
	}
	if _, ok := fitted(points[:1]); ok {
		t.Error("one point determines nothing")
	}
}
