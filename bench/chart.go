package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
)

// A chart is several panels of bars, each with its own scale, as an SVG on a white card, which is
// readable on light and dark pages.
type chart []panel

type panel struct {
	title string
	bars  []bar
}

type bar struct {
	name, color string
	of          summary
}

// add adds a bar for a value of a cell, if it was measured.
func (p *panel) add(r results, c cell, value, name string) {
	if of, ok := r.of(c, value); ok {
		p.bars = append(p.bars, bar{name, colors[c.system], of})
	}
}

var colors = map[string]string{
	ours: "#1f6fc4", theirs: "#e08a3c",
	bare: "#b6bdc6", pipelined: "#d3d8de", scripted: "#b6bdc6", variadic: "#d3d8de",
}

// drawCharts writes the charts of the results.
func drawCharts(dir string, r results, chosen []scenario) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw the charts: %w", err)
	}
	charts := map[string]chart{}
	for _, p := range chosen {
		switch p.name {
		case enqueuing:
			charts["enqueue"] = bySystem(r, p, "%s, tasks/s")
		case processing:
			charts["process"] = bySystem(r, p, "handlers: %s, tasks/s")
		case delaying:
			charts["latency"] = latencies(r)
		default:
			charts["growth"] = append(charts["growth"], growth(r, p)...)
		}
	}
	for name, c := range charts {
		if len(c) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name+".svg"), c.svg(), 0o644); err != nil {
			return fmt.Errorf("draw the chart of %s: %w", name, err)
		}
	}
	return nil
}

// bySystem returns a chart with a panel for each variant, which has a bar for each system.
func bySystem(r results, s scenario, title string) (c chart) {
	place := map[string]int{}
	for _, step := range s.steps {
		if _, ok := place[step.variant]; !ok {
			place[step.variant] = len(c)
			c = append(c, panel{title: fmt.Sprintf(title, step.variant)})
		}
		c[place[step.variant]].add(r, step.cell, "tasks/s", step.system)
	}
	return c
}

// latencies returns a chart of how long a task waits, compared with one round trip.
func latencies(r results) (c chart) {
	for _, of := range []struct{ title, task, trip string }{
		{"median, ms", "p50 ms", "trip ms"}, {"99th percentile, ms", "p99 ms", "trip p99 ms"}, {"maximum, ms", "max ms", ""},
	} {
		p := panel{title: "from the call of enqueue to the start, " + of.title}
		p.add(r, cell{delaying, "", ours}, of.trip, "one round trip")
		for i := range p.bars {
			p.bars[i].color = colors[bare]
		}
		p.add(r, cell{delaying, "", ours}, of.task, ours)
		p.add(r, cell{delaying, "", theirs}, of.task, theirs)
		c = append(c, p)
	}
	return c
}

// growth returns a chart of what a task costs Redis as the amount of something grows.
func growth(r results, s scenario) chart {
	of, ok := map[string]string{waiting: "tasks that wait", beside: "idle peers of the queue", spreading: "queues of a peer", sizing: "bytes of payload"}[s.name]
	if !ok {
		return nil
	}
	value, p := "server µs", panel{title: "Redis's µs for a task, by " + of}
	if s.name == sizing {
		value = "process server µs"
	}
	for _, v := range r.variants(s, ours) {
		p.add(r, cell{s.name, v, ours}, value, v)
	}
	return chart{p}
}

// svg draws the chart. A bar ends at the median; the line on it shows the range of the rounds.
func (c chart) svg() []byte {
	const width, margin, left, right, row = 640, 20, 140, 80, 20
	var b bytes.Buffer
	y := margin
	text := func(x, y int, style, words string) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" %s>`, x, y, style)
		_ = xml.EscapeText(&b, []byte(words)) // it writes to memory
		b.WriteString("</text>\n")
	}
	for _, p := range c {
		text(margin, y+14, `font-weight="bold"`, p.title)
		most := 0.0
		for _, bar := range p.bars {
			most = max(most, bar.of.max)
		}
		scale := func(v float64) int { return left + int(v/max(most, 1e-9)*(width-left-right)) }
		for _, bar := range p.bars {
			y += row
			text(left-8, y+14, `text-anchor="end"`, bar.name)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="12" fill="%s"/>`+"\n", left, y+4, max(scale(bar.of.median)-left, 1), bar.color)
			fmt.Fprintf(&b, `<path d="M%d %dH%d" stroke="#24292f" stroke-width="0.75"/>`+"\n", scale(bar.of.min), y+10, scale(bar.of.max))
			text(scale(bar.of.max)+6, y+14, `fill="#6e7781"`, figure(bar.of.median))
		}
		y += 2 * row
	}
	head := fmt.Sprintf(`<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="Arial,Helvetica,sans-serif" font-size="11" fill="#24292f">
<rect width="100%%" height="100%%" fill="#fff"/>
`, width, y)
	return append(append([]byte(head), b.Bytes()...), "</svg>\n"...)
}
