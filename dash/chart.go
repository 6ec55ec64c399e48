package dash

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A chart is drawn as SVG, without a script. Its coordinates are the values themselves, so that the script can
// show those under the pointer.
type chart struct {
	Title  string
	Unit   string  // "s" for seconds, "/s" for paces, otherwise a count
	Span   float64 // seconds
	Since  string  // when it begins
	Max    float64
	Lines  []curve
	Ticks  []tick
	Marks  []mark
	Filled string // points of the area below the first line
	Spoken string // for screen readers
}

// A curve is one line of a chart.
type curve struct {
	Name   string
	Now    string
	Points string
}

// A mark is a vertical line with a label.
type mark struct {
	At    string // from the left, in percent
	Label string
}

// A tick is a horizontal line with a label.
type tick struct {
	Value float64
	At    string // from the top, in percent
	Label string
}

// A series is the values of one line over time.
type series struct {
	name   string
	at     []time.Time
	values []float64
}

// now returns the last value. ok is false if that is older than recent.
func (s series) now(at time.Time) (value float64, ok bool) {
	n := len(s.values)
	if n == 0 || at.Sub(s.at[n-1]) > recent {
		return 0, false
	}
	return s.values[n-1], true
}

// How old a current value may be, over how long a line is averaged, and how far apart its points are.
const (
	recent   = 10 * time.Second
	averaged = 8 * time.Second
	apart    = 2 * time.Second
)

// smooth returns a moving average, since a series that goes up and down each second would fill the chart. The
// times of its points are multiples of apart, except the last, so that a line moves without changing its shape.
func (s series) smooth() series {
	thin := series{name: s.name}
	first, sum := 0, 0.0
	for i, v := range s.values {
		sum += v
		for s.at[i].Sub(s.at[first]) > averaged {
			sum -= s.values[first]
			first++
		}
		if i == 0 || i == len(s.values)-1 || !s.at[i].Truncate(apart).Equal(s.at[i-1].Truncate(apart)) {
			thin.at, thin.values = append(thin.at, s.at[i]), append(thin.values, max(0, sum/float64(i-first+1)))
		}
	}
	return thin
}

func (h history) points(name string, of func(sample) float64) series {
	s := series{name: name}
	for _, one := range h {
		s.at, s.values = append(s.at, one.At), append(s.values, of(one))
	}
	return s
}

func (h history) paced(name string, of func(pace) float64) series {
	at, all := h.paces()
	s := series{name: name, at: at}
	for _, p := range all {
		s.values = append(s.values, of(p))
	}
	return s
}

// draw returns a chart of the last minutes, with moving averages.
func draw(title, unit string, now time.Time, all ...series) *chart {
	smooth := make([]series, len(all))
	for i, s := range all {
		smooth[i] = s.smooth()
	}
	return plot(title, unit, now, depicted, "5 minutes", smooth, func(i int) (float64, bool) { return all[i].now(now) })
}

// plot returns a chart of the time up to now. last returns the current value of a line.
func plot(title, unit string, now time.Time, span time.Duration, called string, all []series, last func(i int) (float64, bool)) *chart {
	c := &chart{Title: title, Unit: unit, Span: span.Seconds(), Since: called + " ago"}
	top := 0.0
	for _, s := range all {
		for _, v := range s.values {
			top = max(top, v)
		}
	}
	c.Max, c.Ticks = scale(top, unit)
	var said []string
	for i, s := range all {
		line := curve{Name: s.name, Now: "–", Points: trace(s, now)}
		if v, ok := last(i); ok {
			line.Now = measure(v, unit)
		}
		if i == 0 && line.Points != "" {
			points := strings.Fields(line.Points)
			first, _, _ := strings.Cut(points[0], ",")
			last, _, _ := strings.Cut(points[len(points)-1], ",")
			c.Filled = first + ",0 " + strings.Join(points, " ") + " " + last + ",0"
		}
		said = append(said, s.name+" "+line.Now)
		c.Lines = append(c.Lines, line)
	}
	c.Spoken = fmt.Sprintf("%s, the last %s. Now: %s. At most %s.", title, called, strings.Join(said, ", "), measure(top, unit))
	return c
}

// trace returns the points of a line: seconds before now, and the value.
func trace(s series, now time.Time) string {
	var b strings.Builder
	for i, v := range s.values {
		if i > 0 && i < len(s.values)-1 && v == s.values[i-1] && v == s.values[i+1] {
			continue // on a straight line
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatFloat(s.at[i].Sub(now).Seconds(), 'f', 1, 64))
		b.WriteByte(',')
		b.WriteString(strconv.FormatFloat(v, 'g', 5, 64))
	}
	return b.String()
}

// labeled formats the label of a line. All labels of a chart have the same unit.
func labeled(v, most float64, unit string) string {
	if unit != "s" && most >= 10_000 && v < 10_000 {
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + " k" + unit
	}
	return measure(v, unit)
}

// durations are the possible upper limits of a chart of durations, in seconds. Their halves are round, too.
var durations = []float64{1, 2, 4, 10, 20, 60, 2 * 60, 4 * 60, 10 * 60, 20 * 60, 3600, 2 * 3600, 4 * 3600, 12 * 3600, 24 * 3600, 48 * 3600}

// scale returns a round number above all values, and the lines below it.
func scale(top float64, unit string) (most float64, ticks []tick) {
	if i := slices.IndexFunc(durations, func(d float64) bool { return d >= top }); unit == "s" && i >= 0 {
		most = durations[i]
	} else {
		most = above(top, unit)
	}
	for _, part := range []float64{0.5, 1} {
		v := most * part
		ticks = append(ticks, tick{Value: v, At: fmt.Sprintf("%g%%", 100-100*part), Label: labeled(v, most, unit)})
	}
	return most, ticks
}

// above returns a round number that isn't below top.
func above(top float64, unit string) float64 {
	most, steps, of := 1.0, []float64{1, 2, 5, 10}, 1.0
	switch unit {
	case "": // counts have no halves
		most = 4
	case "s": // beyond the longest of durations: days
		steps, of = []float64{1, 2, 4, 10}, 86_400
	}
	if top /= of; top > most {
		step := math.Pow(10, math.Floor(math.Log10(top)))
		for _, s := range steps {
			if most = s * step; most >= top {
				break
			}
		}
	}
	return most * of
}

func measure(v float64, unit string) string {
	switch unit {
	case "s":
		return span(time.Duration(v * float64(time.Second)))
	case "/s":
		return amount(v) + "/s"
	}
	return amount(v)
}

// charts returns the charts of a queue, or of all queues together.
func charts(h history, now time.Time) []*chart {
	return []*chart{
		draw("Throughput", "/s", now,
			h.paced("started", func(p pace) float64 { return p.Starting }), h.paced("arrived", func(p pace) float64 { return p.Arriving })),
		draw("Backlog", "", now,
			h.points("waiting", func(s sample) float64 { return float64(s.Waiting) }), h.points("running", func(s sample) float64 { return float64(s.Running) })),
		draw("Waiting time", "s", now,
			h.known().points("oldest task", func(s sample) float64 { return s.oldest.Seconds() })),
		draw("Failed", "", now, h.points("failed", func(s sample) float64 { return float64(s.Failed) })),
	}
}

// A spark is a line without axes, for tables.
type spark struct {
	Max    float64
	Points string
	Spoken string
}

// sparked returns a spark of how many tasks started in the last minutes.
func (h history) sparked(now time.Time) *spark {
	s := h.paced("", func(p pace) float64 { return p.Starting }).smooth()
	if len(s.values) < 2 {
		return nil
	}
	const most = 40 // points
	if n := len(s.values); n > most {
		thin := series{}
		for i := range most {
			j := i * (n - 1) / (most - 1)
			thin.at, thin.values = append(thin.at, s.at[j]), append(thin.values, s.values[j])
		}
		s = thin
	}
	top := 0.0
	for _, v := range s.values {
		top = max(top, v)
	}
	return &spark{Max: max(top, 0.1) * 1.1, Points: trace(s, now), Spoken: "at most " + measure(top, "/s") + " in the last 5 minutes"}
}
