package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A scraped has the results of two scrapes of a fleet, and the time between them. It stands in for Prometheus's
// storage: rates are computed between the two.
type scraped struct {
	before, after map[string][]sample
	apart         time.Duration
}

// A value is a number, or a vector of samples.
type value struct {
	number float64
	vector []sample
	scalar bool
}

// A term computes its value from one of the two scrapes.
type term func(metrics map[string][]sample) value

// A parser reads the part of PromQL that the alerts and the dashboard use.
type parser struct {
	tokens []string
	in     *scraped
}

var lexeme = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9.]+|\{[^}]*\}|\[[^\]]*\]|==|[-()+*/><,]`)

// eval returns the samples for which an expression is true.
func (s *scraped) eval(t testing.TB, expr string) []sample {
	t.Helper()
	p := &parser{tokens: lexeme.FindAllString(expr, -1), in: s}
	result := p.binary(0)
	if len(p.tokens) > 0 {
		t.Fatalf("%s: cannot parse %q", expr, p.tokens)
	}
	return result(s.after).vector
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

func (p *parser) next() string {
	t := p.peek()
	if t == "" {
		panic("the expression ends early")
	}
	p.tokens = p.tokens[1:]
	return t
}

var levels = [][]string{{"or"}, {"and", "unless"}, {">", "<", "=="}, {"+", "-"}, {"*", "/"}}

func (p *parser) binary(level int) term {
	if level == len(levels) {
		return p.primary()
	}
	left := p.binary(level + 1)
	for slices.Contains(levels[level], p.peek()) {
		first, op, second := left, p.next(), p.binary(level+1)
		left = func(m map[string][]sample) value { return combine(op, first(m), second(m)) }
	}
	return left
}

// primary parses a number, parentheses, a call, an aggregation or a selector.
func (p *parser) primary() term {
	t := p.next()
	if n, err := strconv.ParseFloat(t, 64); err == nil {
		return func(map[string][]sample) value { return value{number: n, scalar: true} }
	}
	switch t {
	case "(":
		inner := p.binary(0)
		p.next()
		if strings.HasPrefix(p.peek(), "[") {
			p.next() // the range of a subquery
		}
		return inner
	case "sum", "max":
		var by []string
		if p.peek() == "by" {
			p.next()
			for p.next(); p.peek() != ")"; {
				if l := p.next(); l != "," {
					by = append(by, l)
				}
			}
			p.next()
		}
		inner := p.primary()
		return func(m map[string][]sample) value { return aggregate(t, by, inner(m).vector) }
	case "time":
		p.next()
		p.next()
		return func(map[string][]sample) value {
			return value{number: float64(time.Now().UnixMilli()) / 1000, scalar: true}
		}
	case "histogram_quantile":
		p.next()
		rank, err := strconv.ParseFloat(p.next(), 64)
		if p.next() != "," || err != nil {
			panic("histogram_quantile has no rank")
		}
		inner := p.binary(0)
		p.next()
		return func(m map[string][]sample) value { return value{vector: quantiles(rank, inner(m).vector)} }
	case "rate", "increase", "deriv", "absent":
		return p.call(t, p.primary())
	}
	matchers := ""
	if strings.HasPrefix(p.peek(), "{") {
		matchers = p.next()
	}
	if strings.HasPrefix(p.peek(), "[") {
		p.next()
	}
	return func(m map[string][]sample) value { return value{vector: chosen(m[t], matchers)} }
}

func (p *parser) call(name string, inner term) term {
	return func(m map[string][]sample) value {
		if name == "absent" {
			if len(inner(m).vector) == 0 {
				return value{vector: []sample{{value: 1}}}
			}
			return value{}
		}
		now, was := inner(p.in.after), inner(p.in.before)
		for _, s := range now.vector { // a counter starts at 0 as soon as its queue is served
			if at(was.vector, s) < 0 {
				was.vector = append(was.vector, sample{labels: s.labels})
			}
		}
		diff := combine("-", now, was)
		if name == "increase" {
			return diff
		}
		return combine("/", diff, value{number: p.in.apart.Seconds(), scalar: true})
	}
}

// chosen returns the samples with the labels. It ignores lists after =~.
func chosen(all []sample, matchers string) (some []sample) {
	for _, s := range all {
		matches := true
		for _, l := range label.FindAllStringSubmatch(matchers, -1) {
			value, has := s.labels[l[1]]
			matches = matches && has && (l[2] == "=~" || value == l[3])
		}
		if matches {
			some = append(some, s)
		}
	}
	return some
}

func aggregate(how string, by []string, all []sample) (v value) {
	groups := map[string]*sample{}
	for _, s := range all {
		labels := map[string]string{}
		for _, l := range by {
			labels[l] = s.labels[l]
		}
		g := groups[fmt.Sprint(labels)]
		switch {
		case g == nil:
			groups[fmt.Sprint(labels)] = &sample{labels, s.value}
		case how == "sum":
			g.value += s.value
		default:
			g.value = max(g.value, s.value)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		v.vector = append(v.vector, *groups[key])
	}
	return v
}

// quantiles returns the quantiles of histograms, as Prometheus estimates them: it assumes that
// observations are evenly spread within the bucket of the rank.
func quantiles(rank float64, buckets []sample) (all []sample) {
	of := map[string][]sample{} // of a histogram; each has its bound as its value, and its count in le
	for _, b := range buckets {
		labels := maps.Clone(b.labels)
		delete(labels, "le")
		of[fmt.Sprint(labels)] = append(of[fmt.Sprint(labels)], b)
	}
	bound := func(b sample) float64 {
		le, err := strconv.ParseFloat(b.labels["le"], 64)
		if err != nil {
			panic(err)
		}
		return le
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		histogram := of[key]
		slices.SortFunc(histogram, func(a, b sample) int { return cmp.Compare(bound(a), bound(b)) })
		wanted := rank * histogram[len(histogram)-1].value
		i := slices.IndexFunc(histogram, func(b sample) bool { return b.value >= wanted })
		labels := maps.Clone(histogram[i].labels)
		delete(labels, "le")
		low, before := 0., 0.
		if i > 0 {
			low, before = bound(histogram[i-1]), histogram[i-1].value
		}
		q := low
		if i < len(histogram)-1 { // the distance beyond the last bound is unknown
			q += (bound(histogram[i]) - low) * (wanted - before) / (histogram[i].value - before)
		}
		all = append(all, sample{labels, q})
	}
	return all
}

// at returns the index of the sample in a vector with the same labels as s; -1 if there is none.
func at(vector []sample, s sample) int {
	return slices.IndexFunc(vector, func(o sample) bool { return maps.Equal(o.labels, s.labels) })
}

// combine applies an operator: to each sample and a number, or to samples with the same labels.
func combine(op string, a, b value) (v value) {
	if op == "or" {
		v.vector = slices.Clone(a.vector)
		for _, s := range b.vector {
			if at(a.vector, s) < 0 {
				v.vector = append(v.vector, s)
			}
		}
		return v
	}
	if a.scalar {
		a.vector = make([]sample, len(b.vector))
		for i, s := range b.vector {
			a.vector[i] = sample{s.labels, a.number}
		}
	}
	for _, s := range a.vector {
		i := at(b.vector, s)
		other, has := b.number, b.scalar
		if i >= 0 {
			other, has = b.vector[i].value, true
		}
		keep := has
		switch op {
		case "unless":
			keep = !has
		case ">":
			keep = has && s.value > other
		case "<":
			keep = has && s.value < other
		case "==":
			keep = has && s.value == other
		case "+":
			s.value += other
		case "-":
			s.value -= other
		case "*":
			s.value *= other
		case "/":
			s.value /= other
		}
		if keep {
			v.vector = append(v.vector, s)
		}
	}
	return v
}
