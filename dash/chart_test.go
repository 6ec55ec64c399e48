package dash

import (
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
)

// each returns a series with a value each second, the last one at a time.
func each(name string, end time.Time, values ...float64) series {
	s := series{name: name, values: values}
	for i := range values {
		s.at = append(s.at, end.Add(time.Duration(i+1-len(values))*time.Second))
	}
	return s
}

// The points of a chart are its values, and its top is a round number above them.
func TestChart(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	now := time.Now().Truncate(apart)
	c := draw("Backlog", "", now, each("waiting", now, 3, 3, 3, 3, 3, 3, 3, 3, 3, 75, 12))
	is.Equal(c.Lines[0].Points, "-10.0,3 -2.0,3 0.0,12") // points on a straight line are left out; the line is averaged
	is.Equal(c.Lines[0].Now, "12")                       // the current value isn't
	is.Equal(c.Filled, "-10.0,0 -10.0,3 -2.0,3 0.0,12 0.0,0")
	is.Equal(c.Max, 20.0)
	is.Equal(c.Ticks, []tick{{10, "50%", "10"}, {20, "0%", "20"}})
	is.Equal(c.Spoken, "Backlog, the last 5 minutes. Now: waiting 12. At most 12.")
	empty := draw("Backlog", "", now, series{name: "waiting"})
	is.Equal(empty.Lines[0], curve{Name: "waiting", Now: "–"})
	_, ticks := scale(9_000, "")
	is.Equal(ticks[0].Label+" "+ticks[1].Label, "5 k 10 k")
	for top, most := range map[float64]float64{0: 4, 3: 4, 5: 5, 17: 20, 99: 100, 101: 200, 3000: 5000} {
		got, _ := scale(top, "")
		is.Equal(got, most)
	}
}

// A series that has ended has no current value, though its line is still there.
func TestDeadSeries(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	now := time.Now()
	c := draw("Waiting time", "s", now, each("oldest task", now, 1, 1, 1), each("newest task", now.Add(-recent-time.Second), 7, 7, 7))
	is.Equal([]string{c.Lines[0].Now, c.Lines[1].Now}, []string{"1 s", "–"})
	is.True(strings.Contains(c.Lines[1].Points, ",7"))
	is.True(strings.Contains(c.Spoken, "newest task –"))
}
