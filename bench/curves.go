package main

import (
	"image/color"
	"math"
	"slices"
	"strconv"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// latencyChart tells which part of the tasks has started after how long.
func latencyChart(r results) (*chart, error) {
	p, drawn := panel(), 0
	for _, line := range []struct {
		name   string
		cell   cell
		curve  string
		color  color.Color
		dashes []vg.Length
	}{
		{"one round trip", cell{delaying, "", ours}, "trip", quiet, []vg.Length{3, 3}},
		{ours, cell{delaying, "", ours}, "start", colors[ours], nil},
		{theirs, cell{delaying, "", theirs}, "start", colors[theirs], nil},
	} {
		points := r.curve(line.cell, line.curve)
		if points == nil {
			continue
		}
		l, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		l.Color, l.Width, l.Dashes = line.color, 1.75, line.dashes
		p.Add(l)
		p.Legend.Add(line.name, l)
		drawn++
	}
	if drawn == 0 {
		return nil, nil
	}
	p.Y.Min, p.Y.Max = 0, 100
	p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs = true, -width/4, -rowHeight
	c := newChart(300)
	c.plot(draw.Crop(c.Canvas, margin, -margin, margin, -margin), p, "% of the tasks that have started, by ms since the call of enqueue")
	return c, nil
}

// curve returns the percentiles of all rounds, each being the median of theirs.
func (r results) curve(c cell, name string) (points plotter.XYs) {
	for p := range 101 {
		var values []float64
		for _, s := range r[c] {
			if curve := s.Curves[name]; len(curve) > p {
				values = append(values, curve[p])
			}
		}
		if of, ok := spreadOf(values); ok && of.median > 0 {
			points = append(points, plotter.XY{X: of.median, Y: float64(p)})
		}
	}
	return points
}

// growthChart tells what a task costs Redis as there is more of everything.
func growthChart(r results, chosen []scenario) (*chart, error) {
	titles := map[string]string{
		waiting:   "tasks that wait",
		beside:    "idle peers of the queue",
		spreading: "queues of a peer",
		sizing:    "bytes of payload",
	}
	shown := slices.DeleteFunc(slices.Clone(chosen), func(s scenario) bool {
		return titles[s.name] == "" || len(r.variants(s, ours)) == 0
	})
	if len(shown) == 0 {
		return nil, nil
	}
	rows := (len(shown) + 1) / 2
	c := newChart(vg.Length(rows) * 220)
	tiles := draw.Tiles{
		Rows: rows, Cols: 2, PadX: 2 * margin, PadY: margin,
		PadTop: margin, PadBottom: margin, PadLeft: margin, PadRight: margin,
	}
	for i, s := range shown {
		p, err := growthPanel(r, s)
		if err != nil {
			return nil, err
		}
		c.plot(tiles.At(c.Canvas, i%2, i/2), p, "Redis's µs for a task, by "+titles[s.name])
	}
	return c, nil
}

// growthPanel has a line with the range of the rounds at each point.
func growthPanel(r results, s scenario) (*plot.Plot, error) {
	p := panel()
	value := "server µs"
	if s.name == sizing {
		value = "process server µs"
	}
	var points plotter.XYs
	var errs plotter.YErrors
	for _, v := range r.variants(s, ours) {
		x, err := strconv.ParseFloat(v, 64)
		of, ok := r.of(cell{s.name, v, ours}, value)
		if err != nil || !ok {
			continue
		}
		points = append(points, plotter.XY{X: x, Y: of.median})
		errs = append(errs, struct{ Low, High float64 }{of.median - of.min, of.max - of.median})
	}
	line, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return nil, err
	}
	ranges, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, errs})
	if err != nil {
		return nil, err
	}
	line.Color, line.Width = colors[ours], 1.75
	dots.Color, dots.Radius, dots.Shape = colors[ours], 2.5, draw.CircleGlyph{}
	ranges.Color, ranges.Width, ranges.CapWidth = quiet, 0.75, 0
	p.Add(ranges, line, dots)
	if s.name == sizing { // from bytes to megabytes
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
		p.Y.Min, p.Y.Max = decade(p.Y.Min, math.Floor), decade(p.Y.Max, math.Ceil)
	} else {
		p.Y.Min, p.Y.Max = 0, p.Y.Max*1.15
	}
	return p, nil
}

// panel is a plot with an axis of powers of ten, in the style of the charts.
func panel() *plot.Plot {
	p := plot.New()
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, decades{}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = hair, hair
		axis.Tick.Label.Color, axis.Tick.Label.Font = quiet, style(quiet, xfont.WeightNormal).Font
	}
	p.Y.Tick.Marker = named{}
	grid := plotter.NewGrid()
	grid.Vertical.Width, grid.Horizontal.Color = 0, hair
	p.Add(grid)
	p.Legend.TextStyle.Color, p.Legend.TextStyle.Font = ink, style(ink, xfont.WeightNormal).Font
	p.Legend.Padding = 6
	return p
}

// plot draws a panel under its title.
func (c *chart) plot(area draw.Canvas, p *plot.Plot, title string) {
	c.write(style(ink, xfont.WeightBold), draw.XLeft, area.Min.X, area.Max.Y-size/2, title)
	p.Draw(draw.Crop(area, 0, 0, 0, -rowHeight))
}

// named are ticks wherever they fit, named as figures are.
type named struct{}

// Ticks implements plot.Ticker.
func (named) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i, t := range ticks {
		if t.Label != "" {
			ticks[i].Label = figure(t.Value)
		}
	}
	return ticks
}

// decades are ticks at the powers of ten.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(least, most float64) (ticks []plot.Tick) {
	for v := decade(least, math.Floor); v <= most*1.001; v *= 10 {
		if v >= least*0.999 {
			ticks = append(ticks, plot.Tick{Value: v, Label: figure(v)})
		}
	}
	return ticks
}

// decade rounds to a power of ten.
func decade(v float64, round func(float64) float64) float64 {
	return math.Pow(10, round(math.Log10(v)))
}
