// Package top shows a fleet on a terminal, and updates it.
package top

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

// A Fleet is the source of the data, and does the actions.
type Fleet interface {
	Look(ctx context.Context) (*Snapshot, error)
	Pause(ctx context.Context, queue string) error
	Resume(ctx context.Context, queue string) error
	Requeue(ctx context.Context, queue string) (tasks int, err error)
}

// A Snapshot is the state of a fleet at one moment.
type Snapshot struct {
	At      time.Time
	Queues  []Queue
	Workers []inspect.Worker

	Unlisted error // why not all workers could be listed
	Unnoted  error // why the notes can't be read
	Server   inspect.ServerStats
	Happened []inspect.Happening
	Silences []inspect.Silence
}

// A Queue is the state of a queue.
type Queue struct {
	Name string
	inspect.QueueStats
	Unread error // why it can't be read
	Usual  inspect.Usual
}

// Options configure Run.
type Options struct {
	Every    time.Duration                      // the interval between updates
	Where    string                             // where the fleet's Redis is
	ReadOnly bool                               // keys don't change anything
	Show     func(text string, most int) string // makes text from outside harmless
	In       io.Reader
	Out      io.Writer
}

// Run shows the fleet until the user or ctx ends it.
func Run(ctx context.Context, f Fleet, o Options) error {
	m := newModel(ctx, f, o)
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler()).Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		err = nil
	}
	return cmp.Or(err, m.left())
}

// A model is what the terminal shows.
type model struct {
	ctx   context.Context
	fleet Fleet
	opts  Options

	now     *Snapshot // nil before the first
	unread  int       // its queues that can't be read
	err     error     // why the last update failed
	past    map[string]*history
	causes  []inspect.Line // what is wrong, the worst first
	total   history
	by      order
	chosen  string // the name of the selected queue
	first   int    // index of the first queue shown
	ask     string // the queue whose failed tasks will be requeued, if the user confirms
	doing   string // the action in progress; "" if there is none
	note    string // the result of the last key
	width   int
	height  int
	workers bool // the workers have most of the screen
}

func newModel(ctx context.Context, f Fleet, o Options) *model {
	return &model{ctx: ctx, fleet: f, opts: o, past: map[string]*history{}, width: 80, height: 24}
}

// The messages to the model, besides keys and sizes.
type (
	looked struct {
		snapshot *Snapshot
		err      error
	}
	lookAgain struct{}
	acted     struct{ note string }
)

// patience is how long an update or an action may take.
const patience = 10 * time.Second

func (m *model) look() tea.Msg {
	ctx, stop := context.WithTimeout(m.ctx, patience)
	defer stop()
	s, err := m.fleet.Look(ctx)
	return looked{s, err}
}

func (m *model) Init() tea.Cmd { return m.look }

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
	case looked:
		if m.err = msg.err; msg.err == nil {
			m.take(msg.snapshot)
		}
		return m, tea.Tick(m.opts.Every, func(time.Time) tea.Msg { return lookAgain{} })
	case lookAgain:
		return m, m.look
	case acted:
		m.doing, m.note = "", msg.note
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	}
	return m, nil
}

// take replaces the current snapshot.
func (m *model) take(s *Snapshot) {
	var sum inspect.QueueStats
	seen, unread := map[string]bool{}, 0
	for _, q := range s.Queues {
		if m.past[q.Name] == nil {
			m.past[q.Name] = &history{}
		}
		if seen[q.Name] = true; q.Unread != nil {
			unread++
			continue
		}
		m.past[q.Name].add(s.At, q.QueueStats)
		sum.Waiting, sum.Scheduled, sum.Tokens = sum.Waiting+q.Waiting, sum.Scheduled+q.Scheduled, sum.Tokens+q.Tokens
	}
	if m.now != nil && (len(m.now.Queues) != len(s.Queues) || m.unread != unread) { // the sums are of other queues
		m.total.last = nil
	}
	m.total.add(s.At, sum)
	for name := range m.past {
		if !seen[name] {
			delete(m.past, name)
		}
	}
	m.now, m.unread = s, unread
	m.sort()
	m.causes = inspect.Fold(worqr.Judge(m.sight()))
}

// sight returns what the snapshot shows, and what has changed.
func (m *model) sight() inspect.Sight {
	all := inspect.Sight{At: m.now.At, Unlisted: m.now.Unlisted, Unnoted: m.now.Unnoted, Workers: m.now.Workers, Server: m.now.Server, Happened: m.now.Happened, Silences: m.now.Silences}
	for _, q := range m.now.Queues {
		of := inspect.QueueSight{Name: q.Name, Err: q.Unread, QueueStats: q.QueueStats, Usual: q.Usual}
		if h := m.past[q.Name]; q.Unread == nil {
			of.Recent = h.recent()
		}
		all.Queues = append(all.Queues, of)
	}
	return all
}

func (m *model) key(key string) tea.Cmd {
	if m.ask != "" {
		queue := m.ask
		m.ask = ""
		if key != "y" {
			m.note = "nothing was requeued"
			return nil
		}
		return m.act("requeue the failed tasks of", queue, func(ctx context.Context, name string) (string, error) {
			n, err := m.fleet.Requeue(ctx, queue)
			note := fmt.Sprintf("requeued %s of %s", words.Counted(n, "failed task"), name)
			if err != nil && n > 0 {
				err = fmt.Errorf("%s before it failed: %w", note, err)
			}
			return note, err
		})
	}
	m.note = ""
	switch key {
	case "q", "ctrl+c", "esc":
		return tea.Quit
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(+1)
	case "pgup":
		m.move(-m.room())
	case "pgdown":
		m.move(+m.room())
	case "s":
		m.by = (m.by + 1) % orders
		m.sort()
	case "w", "tab":
		m.workers = !m.workers
	case "p", "r":
		return m.actOn(key)
	}
	return nil
}

// actOn handles a key that acts on the selected queue.
func (m *model) actOn(key string) tea.Cmd {
	q := m.choice()
	switch {
	case q == nil:
		m.note = "no queue is selected"
	case m.opts.ReadOnly:
		m.note = "this is read-only"
	case key == "r" && q.Failed == 0:
		m.note = "no task of " + m.opts.Show(q.Name, shownName) + " has failed"
	case key == "r":
		m.ask = q.Name
	case q.Paused:
		return m.act("resume", q.Name, func(ctx context.Context, name string) (string, error) {
			return "resumed " + name, m.fleet.Resume(ctx, q.Name)
		})
	default:
		return m.act("pause", q.Name, func(ctx context.Context, name string) (string, error) {
			return "paused " + name, m.fleet.Pause(ctx, q.Name)
		})
	}
	return nil
}

// left returns an error if there is an action in progress.
func (m *model) left() error {
	if m.doing == "" {
		return nil
	}
	return errors.New("top ended before Redis had answered; this may be done, or a part of it: " + m.doing)
}

// act begins an action on a queue.
func (m *model) act(verb, queue string, do func(ctx context.Context, name string) (note string, err error)) tea.Cmd {
	name := m.opts.Show(queue, shownName)
	m.doing = verb + " " + name
	return func() tea.Msg {
		ctx, stop := context.WithTimeout(m.ctx, patience)
		defer stop()
		note, err := do(ctx, name)
		if err != nil {
			note = m.opts.Show(err.Error(), 200)
		}
		return acted{note}
	}
}
