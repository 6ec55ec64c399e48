package main

import (
	"fmt"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	rowHeight   = vg.Length(20)
	panelGap    = vg.Length(18)
	namesWidth  = vg.Length(120)
	labelsWidth = vg.Length(60)
)

// barChart has a panel for each variant, and in it a bar for each system. Each
// panel has a scale of its own.
func barChart(r results, p scenario, title string) (*chart, error) {
	var variants []string
	panels := map[string][]step{}
	rows := 0
	for _, s := range p.steps {
		if _, ok := r.of(s.cell, "tasks/s"); !ok {
			continue
		}
		if panels[s.variant] == nil {
			variants = append(variants, s.variant)
		}
		panels[s.variant] = append(panels[s.variant], s)
		rows++
	}
	if rows == 0 {
		return nil, nil
	}
	height := 2*margin + vg.Length(rows+len(variants))*rowHeight + vg.Length(len(variants)-1)*panelGap
	c := newChart(height)
	y := c.Max.Y - margin
	for _, v := range variants {
		c.write(style(ink, xfont.WeightBold), draw.XLeft, margin, y-rowHeight/2, fmt.Sprintf(title, v)+", tasks/s")
		y -= rowHeight
		y = c.bars(r, panels[v], y) - panelGap
	}
	return c, nil
}

// bars draws one panel, and returns where it ends.
func (c *chart) bars(r results, steps []step, y vg.Length) vg.Length {
	most := 0.0
	for _, s := range steps {
		of, _ := r.of(s.cell, "tasks/s")
		most = max(most, of.max)
	}
	left := margin + namesWidth
	scale := func(v float64) vg.Length { return left + vg.Length(v/most)*(width-left-labelsWidth-margin) }
	for _, s := range steps {
		of, _ := r.of(s.cell, "tasks/s")
		middle := y - rowHeight/2
		c.write(style(ink, xfont.WeightNormal), draw.XRight, left-8, middle, s.system)
		bar := vg.Rectangle{Min: vg.Point{X: left, Y: middle - 6}, Max: vg.Point{X: scale(of.median), Y: middle + 6}}
		c.SetColor(colors[s.system])
		c.Fill(bar.Path())
		c.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.75}, scale(of.min), middle, scale(of.max), middle)
		c.write(style(quiet, xfont.WeightNormal), draw.XLeft, scale(of.max)+6, middle, figure(of.median))
		y -= rowHeight
	}
	return y
}
