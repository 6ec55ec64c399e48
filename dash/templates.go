package dash

import (
	"html/template"
	"sync"
	"time"

	"github.com/worqr/worqr"
)

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/*.html"))
})

// functions are what templates may call.
var functions = template.FuncMap{
	"amount": amount, "count": count, "folded": folded, "line": line, "link": link, "several": several, "size": size, "span": span, "text": printable, "versioned": versioned,
	"ago":     func(t time.Time) string { return span(time.Since(t)) + " ago" },
	"clock":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"columns": func() []column { return columns },
	"due":     due,
	"int":     func(n int64) int { return int(n) },
	"lease":   lease,
	"pace":    func(f float64) string { return measure(f, "/s") },
	"plus":    func(a, b int) int { return a + b },
	"reason":  reason,
	"since":   func(t time.Time) string { return span(time.Since(t)) },
	"tabs":    func() []tab { return tabs },
}

// A column is one of the list of queues.
type column struct{ Label, Sort, Class string }

var columns = []column{
	{"Queue", "name", ""}, {"Waiting", "waiting", "n"}, {"Oldest", "oldest", "n"}, {"Started", "started", "n"}, {"Last 5 min", "", ""},
	{"Running", "running", "n"}, {"Scheduled", "scheduled", "n"}, {"Failed", "failed", "n"}, {"Workers", "workers", "n"},
}

// A tab is a list of a queue's tasks.
type tab struct{ Name, Label string }

var tabs = []tab{{"waiting", "In order"}, {"running", "Running"}, {"scheduled", "Scheduled"}, {"added", "Added"}}

// due says when something starts.
func due(t time.Time) string {
	if d := time.Until(t); d > 0 {
		return "in " + span(d)
	}
	return "now"
}

func lease(d time.Duration) string {
	if d < 0 {
		return "forever"
	}
	return span(d)
}

// reason says why a task doesn't run.
func reason(r worqr.Reason) string {
	switch r {
	case worqr.ReasonPaused:
		return "the queue is paused"
	case worqr.ReasonNoWorker:
		return "no worker serves the queue"
	case worqr.ReasonBusy:
		return "all workers are busy"
	case worqr.ReasonNotDue:
		return "it isn’t due"
	case worqr.ReasonBehind:
		return "others start before it"
	case worqr.ReasonBlocked:
		return "a task with its key is running"
	case worqr.ReasonSuspect:
		return "it waits to run alone, one crash away from failing"
	case worqr.ReasonLeaseExpired:
		return "its worker’s heartbeats have stopped"
	case worqr.ReasonReturning:
		return "it’s being returned from a worker that is gone"
	case worqr.ReasonFailed:
		return "it has failed"
	}
	return string(r)
}

// How many banners of one kind are shown before they're folded into one.
const unfolded = 2

// folded makes one banner of many that say the same of several queues.
func folded(all []banner) (few []banner) {
	same := map[string]int{}
	for _, b := range all {
		same[b.Level+b.Kind]++
	}
	told := map[string]bool{}
	for _, b := range all {
		n := same[b.Level+b.Kind]
		switch {
		case n <= unfolded || b.Queue == "":
			few = append(few, b)
		case !told[b.Level+b.Kind]:
			told[b.Level+b.Kind] = true
			b.Others = n - 1
			few = append(few, b)
		}
	}
	return few
}
