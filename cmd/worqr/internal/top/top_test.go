package top

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/matryer/is"

	"github.com/worqr/worqr/inspect"
)

// fake is a fleet that records the actions.
type fake struct {
	now  *Snapshot
	err  error
	cut  error // of Requeue
	done []string
}

func (f *fake) Look(context.Context) (*Snapshot, error) { return f.now, f.err }
func (f *fake) Pause(_ context.Context, q string) error {
	f.done = append(f.done, "pause "+q)
	return nil
}
func (f *fake) Resume(_ context.Context, q string) error {
	f.done = append(f.done, "resume "+q)
	return errors.New("it failed")
}
func (f *fake) Requeue(_ context.Context, q string) (int, error) {
	f.done = append(f.done, "requeue "+q)
	return 7, f.cut
}

type stats = inspect.QueueStats

func of(name string, s stats) Queue { return Queue{Name: name, QueueStats: s} }

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int, queues ...Queue) *Snapshot {
	return &Snapshot{At: began.Add(time.Duration(seconds) * time.Second), Queues: queues, Workers: []inspect.Worker{{ID: "w1", Name: "api", Host: "h", PID: 7, StartedAt: began, Queues: []string{"a"}, StuckHandlers: 1}}}
}

func show(text string, most int) string { return strings.ToUpper(text[:min(len(text), most)]) }

func showing(t *testing.T, f *fake) *model {
	m := newModel(t.Context(), f, Options{Every: time.Hour, Where: "here", Show: show})
	m.Update(tea.WindowSizeMsg{Width: 140, Height: 24})
	return m
}

// press presses keys, and runs their effects.
func press(m *model, keys ...string) {
	for _, key := range keys {
		if cmd := m.key(key); cmd != nil {
			m.Update(cmd())
		}
	}
}

func text(m *model) string { return strings.Join(m.lines(), "\n") }

// Rates count the tasks started and added between two updates.
func TestRates(t *testing.T) {
	is := is.New(t)
	m := showing(t, &fake{})
	m.Update(looked{at(0, of("a", stats{Waiting: 10, Tokens: 100})), nil})
	m.Update(looked{at(2, of("a", stats{Waiting: 16, Tokens: 120})), nil})
	is.Equal(m.past["a"].rate(), 10.0)
	is.Equal(m.past["a"].arrived, 13.0)
	is.Equal(m.total.rate(), 10.0)
	m.Update(looked{at(3, of("a", stats{Tokens: 125})), nil})
	is.Equal(m.past["a"].spark(4), "  █▄")
	m.Update(looked{at(4, of("a", stats{Tokens: 5})), nil}) // Redis was flushed
	is.Equal(m.past["a"].rate(), 0.0)
	for i := range 3 * samples {
		m.Update(looked{at(5+i, of("a", stats{Tokens: int64(i)})), nil})
	}
	is.Equal(len(m.past["a"].started), samples)
	m.Update(looked{at(500, Queue{Name: "b"}), nil})
	is.Equal(len(m.past), 1)
}

func TestKeys(t *testing.T) {
	is := is.New(t)
	f := &fake{}
	m := showing(t, f)
	press(m, "p", "s", "j") // before the first snapshot
	m.by = byName
	m.Update(looked{at(0, of("b", stats{Failed: 3, Paused: true}), of("a", stats{Waiting: 1}), of("c", stats{Waiting: 2})), nil})
	is.Equal(m.chosen, "a")
	press(m, "p", "j", "p", "r", "n")
	is.Equal(m.note, "nothing was requeued")
	press(m, "r")
	is.True(strings.Contains(m.last(), "Requeue all failed tasks of B? y or n"))
	press(m, "y")
	is.Equal(m.note, "requeued 7 failed tasks of B")
	f.cut = errors.New("it took too long")
	press(m, "r")
	end := m.key("y")
	is.Equal(fmt.Sprint(m.left()), "top ended before Redis had answered; this may be done, or a part of it: requeue the failed tasks of B")
	m.Update(end())
	is.NoErr(m.left())
	is.Equal(m.note, "REQUEUED 7 FAILED TASKS OF B BEFORE IT FAILED: IT TOOK TOO LONG")
	is.Equal(f.done, []string{"pause a", "resume b", "requeue b", "requeue b"})
	press(m, "k", "r")
	is.Equal(m.note, "no task of A has failed")
	press(m, "s") // sorted by waiting; the selection stays
	is.Equal([]string{m.now.Queues[0].Name, m.chosen}, []string{"c", "a"})
	m.opts.ReadOnly = true
	press(m, "p")
	is.Equal(m.note, "this is read-only")
	m.opts.ReadOnly = false
	is.Equal([]any{m.chosen, m.by, len(f.done)}, []any{"a", byWaiting, 4})
	is.Equal(m.key("q")(), tea.Quit())
}

// The screen is filled, and no line is longer than it, even when there is much to show.
func TestSizes(t *testing.T) {
	is := is.New(t)
	m := showing(t, &fake{})
	var many []Queue
	for i := range 100 {
		many = append(many, of(fmt.Sprintf("queue-%03d-%s", i, strings.Repeat("x", 60)), stats{Waiting: i * 1_000_000, Oldest: time.Duration(i) * time.Hour}))
	}
	for _, size := range [][2]int{{140, 24}, {80, 24}, {20, 5}, {1, 1}, {300, 60}} {
		m.Update(tea.WindowSizeMsg{Width: size[0], Height: size[1]})
		m.Update(looked{at(0, many...), nil})
		for range 120 {
			press(m, "j")
		}
		lines := m.lines()
		is.Equal(len(lines), max(size[1], 2))
		for _, line := range lines {
			is.True(lipgloss.Width(line) <= size[0])
		}
		is.Equal(m.chosenAt(), 99)
		is.True(m.first <= 99 && m.first+m.room() > 99) // it's visible
		press(m, "pgup", "w")
	}
}

// On 80 columns, everything except the sparkline is shown.
func TestColumns(t *testing.T) {
	is := is.New(t)
	m := showing(t, &fake{})
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	m.Update(looked{at(0, of("emails", stats{Waiting: 12_345_678, Scheduled: 345_678, Failed: 999_999, Oldest: 90 * time.Second})), nil})
	is.True(strings.Contains(text(m), "QUEUE         WAITING  SCHED RUNNING FAILED   IN/S  OUT/S OLDEST WORK  STATE"))
	is.True(strings.Contains(text(m), "EMAILS       12345678 345678       0 999999      0      0  90.0s    0  no worker"))
}

func TestState(t *testing.T) {
	is := is.New(t)
	for _, c := range []struct {
		want string
		q    Queue
	}{
		{"paused", Queue{QueueStats: stats{Paused: true, Silent: true}}}, {"silent", Queue{QueueStats: stats{Silent: true, Workers: 1, Waiting: 1}}},
		{"no worker", Queue{QueueStats: stats{Waiting: 1}}}, {"no worker", Queue{QueueStats: stats{Scheduled: 1}}},
		{"busy", Queue{QueueStats: stats{Waiting: 1, Workers: 1}}}, {"ok", Queue{QueueStats: stats{Running: 1, Workers: 1}}}, {"idle", Queue{QueueStats: stats{Workers: 1, Scheduled: 1}}}, {"idle", Queue{}},
	} {
		got, _ := state(c.q)
		is.Equal(got, c.want)
	}
}

func TestPausedBy(t *testing.T) {
	is := is.New(t)
	m := showing(t, &fake{})
	m.Update(looked{at(0, of("emails", stats{Paused: true, PausedBy: "ann"}), of("plain", stats{Paused: true})), nil})
	is.True(strings.Contains(text(m), "paused     by ANN"))
	is.Equal(strings.Count(text(m), " by ANN"), 1)
}

// If Redis doesn't answer, that is shown; the last state stays.
func TestAway(t *testing.T) {
	is := is.New(t)
	m := showing(t, &fake{err: errors.New("away")})
	is.True(strings.Contains(text(m), "reading here"))
	m.Update(m.look())
	is.True(strings.Contains(text(m), "Redis can't be read: AWAY"))
	m.Update(looked{at(0, of("a", stats{Waiting: 1})), nil})
	m.Update(m.look())
	is.True(strings.Contains(text(m), "AWAY") && strings.Contains(text(m), "no worker"))
}

// What hangs is judged by how long the queue's tasks usually run, as in a check; and what can't be read is said.
func TestWrong(t *testing.T) {
	is := is.New(t)
	for usual, wrong := range map[time.Duration]bool{0: true, time.Minute: true, time.Hour: false} {
		m := showing(t, &fake{})
		for _, second := range []int{0, 240} {
			q := of("a", stats{Waiting: 1, Running: 1, Workers: 1, Tokens: 7})
			q.Usual.RunTime = usual
			s := at(second, q)
			s.Unnoted = errors.New("the notes are damaged")
			m.Update(looked{s, nil})
		}
		is.Equal(strings.Contains(text(m), "Nothing starts"), wrong)
		is.True(slices.ContainsFunc(m.causes, func(l inspect.Line) bool {
			return l.Kind == "unreadable" && strings.HasPrefix(l.Text, "the notes are damaged. Silences don't count")
		}))
	}
}

func TestShort(t *testing.T) {
	is := is.New(t)
	for d, want := range map[time.Duration]string{0: "0ms", 1500 * time.Millisecond: "1.5s", 2 * time.Minute: "2m", 3 * time.Hour: "3h", 200 * time.Hour: "8d"} {
		is.Equal(short(d), want)
	}
	is.Equal([]string{rate(0), rate(0.5), rate(1234.6)}, []string{"0", "0.5", "1235"})
}
