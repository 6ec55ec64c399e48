package main

import (
	"fmt"
	"math"
	"slices"
)

// results contains the samples of each cell, round by round. A failed one is empty.
type results map[cell][]sample

// A summary describes the values of several rounds.
type summary struct{ median, min, max float64 }

func summarize(values []float64) (summary, bool) {
	if len(values) == 0 {
		return summary{}, false
	}
	slices.Sort(values)
	n := len(values)
	return summary{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}, true
}

// of returns a value of a cell.
func (r results) of(c cell, value string) (summary, bool) {
	var all []float64
	for _, s := range r[c] {
		if v, ok := s[value]; ok {
			all = append(all, v)
		}
	}
	return summarize(all)
}

// ratio compares two cells within each round, so that other load on the machine affected both.
func (r results) ratio(a, b cell, value string) (summary, bool) {
	var all []float64
	for i := range min(len(r[a]), len(r[b])) {
		over, ok := r[a][i][value]
		under, also := r[b][i][value]
		if ok && also && under != 0 {
			all = append(all, over/under)
		}
	}
	return summarize(all)
}

// String returns the median, and the range if there was more than one round.
func (s summary) String() string {
	if s.min == s.max {
		return figure(s.median)
	}
	return fmt.Sprintf("%s (%s–%s)", figure(s.median), figure(s.min), figure(s.max))
}

// figure formats a number with three significant digits.
func figure(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e6, " M"}, {1e4, " k"}} {
		if math.Abs(v) >= unit.size {
			return digits(v/(math.Pow(10, math.Floor(math.Log10(unit.size)/3)*3))) + unit.name
		}
	}
	return digits(v)
}

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.01:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}
