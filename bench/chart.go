package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A chart is an SVG on a white card, which can be read on light and dark pages.
type chart struct {
	svg *vgsvg.Canvas
	draw.Canvas
}

const (
	width  = vg.Length(640)
	margin = vg.Length(20)
	size   = 11 // of text
)

var (
	ink    = color.NRGBA{0x24, 0x29, 0x2f, 0xff}
	quiet  = color.NRGBA{0x6e, 0x77, 0x81, 0xff}
	hair   = color.NRGBA{0xe4, 0xe7, 0xeb, 0xff}
	colors = map[string]color.Color{
		ours:      color.NRGBA{0x1f, 0x6f, 0xc4, 0xff},
		theirs:    color.NRGBA{0xe0, 0x8a, 0x3c, 0xff},
		bare:      color.NRGBA{0xb6, 0xbd, 0xc6, 0xff},
		pipelined: color.NRGBA{0xd3, 0xd8, 0xde, 0xff},
		scripted:  color.NRGBA{0xb6, 0xbd, 0xc6, 0xff},
		variadic:  color.NRGBA{0xd3, 0xd8, 0xde, 0xff},
	}
)

// drawCharts writes the charts of what was measured.
func drawCharts(dir string, r results, chosen []scenario) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw the charts: %w", err)
	}
	charts := map[string]func() (*chart, error){
		"growth": func() (*chart, error) { return growthChart(r, chosen) },
	}
	for _, p := range chosen {
		switch p.name {
		case enqueuing:
			charts[p.name] = func() (*chart, error) { return barChart(r, p, "%s") }
		case processing:
			charts[p.name] = func() (*chart, error) { return barChart(r, p, "handlers: %s") }
		case delaying:
			charts[p.name] = func() (*chart, error) { return latencyChart(r) }
		}
	}
	for name, draw := range charts {
		c, err := draw()
		if err == nil && c != nil { // nil: there is nothing to draw
			err = c.save(filepath.Join(dir, name+".svg"))
		}
		if err != nil {
			return fmt.Errorf("draw the chart of %s: %w", name, err)
		}
	}
	return nil
}

func newChart(height vg.Length) *chart {
	svg := vgsvg.New(width, height)
	c := &chart{svg, draw.New(svg)}
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	return c
}

// save writes the chart. The text is in the font of which the library knows the
// widths, or another with the same widths.
func (c *chart) save(file string) error {
	var b bytes.Buffer
	if _, err := c.svg.WriteTo(&b); err != nil {
		return err
	}
	named := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	return os.WriteFile(file, named, 0o644)
}

// style is that of text.
func style(c color.Color, weight xfont.Weight) text.Style {
	return text.Style{
		Color: c, Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans", Weight: weight}, size),
		Handler: plot.DefaultTextHandler, YAlign: draw.YCenter,
	}
}

// write puts text at a place, which is where it begins, or ends if it is to be
// aligned to the right.
func (c *chart) write(s text.Style, align text.XAlignment, x, y vg.Length, words string) {
	s.XAlign = align
	c.FillText(s, vg.Point{X: x, Y: y}, words)
}
