package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// Style returns the style of a line about findings: red for harm, amber for a risk, faint for the rest.
func Style(l inspect.Line) lipgloss.Style {
	switch {
	case l.Silenced != nil:
		return faintStyle
	case l.Severity.Harms():
		return badStyle
	case l.Severity == inspect.SeverityRisk:
		return warnStyle
	}
	return faintStyle
}

// shownName limits the shown part of a name.
const shownName = 40

var (
	headStyle   = lipgloss.NewStyle().Bold(true)
	chosenStyle = lipgloss.NewStyle().Reverse(true)
	faintStyle  = lipgloss.NewStyle().Faint(true)
	badStyle    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warnStyle   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	goodStyle   = lipgloss.NewStyle().Foreground(lipgloss.Green)
)

// The rows around the tables.
const (
	above = 3 // two lines of totals and the head of the queues
	below = 1 // the last line

	mostLines = 3 // about findings
)

// room returns how many queues fit.
func (m *model) room() int {
	left := m.height - above - below - len(m.wrong())
	if m.now != nil && len(m.now.Workers) > 0 {
		share := min(len(m.now.Workers), left/3)
		if m.workers {
			share = min(len(m.now.Workers), 2*left/3)
		}
		left -= share + 2 // their head, and an empty line
	}
	return max(left, 1)
}

func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "worqr top"
	return v
}

// lines returns what the terminal shows: as many lines as it has, and none too long.
func (m *model) lines() (all []string) {
	switch {
	case m.now == nil && m.err == nil:
		all = []string{"reading " + m.opts.Where + " ..."}
	case m.now == nil:
		all = []string{badStyle.Render("Redis can't be read: " + m.opts.Show(m.err.Error(), 200)), "trying again every " + m.opts.Every.String() + "; q quits"}
	default:
		all = append(m.sums(), m.wrong()...)
		all = append(all, m.queues()...)
		all = append(all, m.workerRows()...)
	}
	room := max(m.height-below, 1)
	for len(all) < room {
		all = append(all, "")
	}
	all = append(all[:room], m.last())
	for i, line := range all {
		all[i] = lipgloss.NewStyle().MaxWidth(m.width).Render(line)
	}
	return all
}

// sums returns the lines about the whole fleet.
func (m *model) sums() []string {
	var sum inspect.QueueStats
	for _, q := range m.now.Queues {
		sum.Waiting, sum.Scheduled, sum.Running, sum.Failed = sum.Waiting+q.Waiting, sum.Scheduled+q.Scheduled, sum.Running+q.Running, sum.Failed+q.Failed
	}
	first := headStyle.Render("worqr top") + fmt.Sprintf("  %s  %s  %s, %s", m.opts.Where, m.now.At.Format(time.TimeOnly), words.Counted(len(m.now.Queues), "queue"), words.Counted(len(m.now.Workers), "worker"))
	if m.err != nil {
		first += "  " + badStyle.Render("Redis can't be read: "+m.opts.Show(m.err.Error(), 100))
	}
	return []string{first, fmt.Sprintf("%d waiting  %d scheduled  %d running  %d failed  %s in/s  %s out/s  %s",
		sum.Waiting, sum.Scheduled, sum.Running, sum.Failed, rate(m.total.arrived), rate(m.total.rate()), goodStyle.Render(m.total.spark(samples)))}
}

// wrong returns a line for each of the worst causes.
func (m *model) wrong() (all []string) {
	lines := m.causes
	for _, l := range lines[:min(len(lines), mostLines)] {
		on := l.On(2)
		if on != "" {
			on += ": "
		}
		all = append(all, Style(l).Render(l.Title)+"  "+m.opts.Show(on+l.Text, 300))
	}
	if more := len(lines) - mostLines; more > 0 {
		all[mostLines-1] += faintStyle.Render(fmt.Sprintf("  (and %d more)", more))
	}
	return all
}

func rate(r float64) string {
	if r < 10 && r > 0 {
		return fmt.Sprintf("%.1f", r)
	}
	return fmt.Sprintf("%.0f", r)
}

// sparkWidth is the width of a queue's sparkline.
const sparkWidth = 16

// others is the width of a row without the name of its queue. Everything except the sparkline fits 80 columns.
const others = 68 + 2 + sparkWidth

func (m *model) queues() []string {
	name := min(max(m.width-others, 12), shownName)
	head := fmt.Sprintf("%-*s %8s %6s %7s %6s %6s %6s %6s %4s  %-9s  %s", name, "QUEUE", "WAITING", "SCHED", "RUNNING", "FAILED", "IN/S", "OUT/S", "OLDEST", "WORK", "STATE", "OUT/S")
	all := []string{headStyle.Render(head)}
	room := m.room()
	for i := m.first; i < min(m.first+room, len(m.now.Queues)); i++ {
		q := m.now.Queues[i]
		past := m.past[q.Name]
		oldest := "-"
		if q.Oldest > 0 {
			oldest = short(q.Oldest)
		}
		row := fmt.Sprintf("%s %8d %6d %7d %6d %6s %6s %6s %4d  ", padded(m.opts.Show(q.Name, name), name), q.Waiting, q.Scheduled, q.Running, q.Failed,
			rate(past.arrived), rate(past.rate()), oldest, q.Workers)
		state, style := state(q)
		state, spark := padded(state, 9), "  "+past.spark(sparkWidth)
		if q.PausedBy != "" { // little ends meanwhile
			spark = "  by " + m.opts.Show(q.PausedBy, 40)
		}
		if q.Unread != nil {
			row = padded(m.opts.Show(q.Name, name), name) + "  "
			state, spark = "can't be read: "+m.opts.Show(q.Unread.Error(), 100), ""
		}
		if q.Name == m.chosen {
			all = append(all, chosenStyle.Render(row+state+spark))
			continue
		}
		all = append(all, row+style.Render(state)+spark)
	}
	if len(m.now.Queues) == 0 {
		all = append(all, faintStyle.Render("no queues yet; is the prefix right?"))
	}
	return all
}

// state returns what is wrong with a queue, in a word or two.
func state(q Queue) (string, lipgloss.Style) {
	switch {
	case q.Unread != nil:
		return "unread", badStyle
	case q.Paused:
		return "paused", warnStyle
	case q.Silent:
		return "silent", badStyle
	case q.Workers == 0 && q.Waiting+q.Scheduled > 0:
		return "no worker", badStyle
	case q.Waiting > 0 && q.IdleWorkers == 0:
		return "busy", warnStyle
	case q.Running > 0:
		return "ok", goodStyle
	}
	return "idle", faintStyle
}

// padded pads text to the width of a column.
func padded(text string, width int) string {
	return text + strings.Repeat(" ", max(width-lipgloss.Width(text), 0))
}

// short formats a duration in at most six characters.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 100*time.Minute:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 100*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func (m *model) workerRows() []string {
	if len(m.now.Workers) == 0 {
		return nil
	}
	all := []string{"", headStyle.Render(fmt.Sprintf("%-24s %-20s %8s %7s %6s  %s", "WORKER", "HOST", "PID", "UP", "STUCK", "QUEUES"))}
	for _, w := range m.now.Workers {
		var queues []string
		for _, q := range w.Queues[:min(len(w.Queues), 20)] {
			queues = append(queues, m.opts.Show(q, shownName))
		}
		up := "-"
		if !w.StartedAt.IsZero() {
			up = short(m.now.At.Sub(w.StartedAt))
		}
		row := fmt.Sprintf("%s %s %8d %7s %6d  %s", padded(m.opts.Show(w.Name, 24), 24), padded(m.opts.Show(w.Host, 20), 20), w.PID, up, w.StuckHandlers, strings.Join(queues, " "))
		if w.StuckHandlers > 0 {
			row = badStyle.Render(row)
		}
		all = append(all, row)
	}
	return all
}

// last returns the line at the bottom.
func (m *model) last() string {
	switch {
	case m.ask != "":
		return warnStyle.Render("Requeue all failed tasks of " + m.opts.Show(m.ask, shownName) + "? y or n")
	case m.note != "":
		return m.note
	}
	return faintStyle.Render("q quit  j/k choose  p pause or resume  r requeue failed  s sort (" + orderNames[m.by] + ")  w workers")
}
