package dash

import (
	"html/template"
	"net/url"
	"sync"
	"time"

	"github.com/worqr/worqr/internal/words"
)

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/*.html"))
})

// functions are those available to templates.
var functions = template.FuncMap{
	"amount": amount, "count": words.Grouped, "line": line, "link": link, "several": words.Counted, "size": size, "span": span, "text": printable, "versioned": versioned,
	"ago":     func(t time.Time) string { return span(time.Since(t)) + " ago" },
	"clock":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"columns": func() []column { return columns },
	"due":     due,
	"escaped": url.QueryEscape,
	"int":     func(n int64) int { return int(n) },
	"lease":   lease,
	"level":   level,
	"pace":    func(f float64) string { return measure(f, "/s") },
	"plus":    func(a, b int) int { return a + b },
	"since":   func(t time.Time) string { return span(time.Since(t)) },
	"spans":   func() []pastSpan { return pastSpans },
	"tabs":    func() []tab { return tabs },
}

// A column is one of the list of queues.
type column struct{ Label, Sort, Class string }

var columns = []column{
	{"Queue", "name", ""}, {"Waiting", "waiting", "n"}, {"Oldest", "oldest", "n"}, {"Started", "started", "n"}, {"Last 5 min", "", ""},
	{"Running", "running", "n"}, {"Scheduled", "scheduled", "n"}, {"Failed", "failed", "n"}, {"Workers", "workers", "n"},
}

// A tab is a list of a queue's tasks. Those on the queue's list are only payloads; named ones are ready or
// risky, scheduled ones also blocked.
type tab struct{ Name, Label string }

var tabs = []tab{{"waiting", "List"}, {"named", "Named"}, {"scheduled", "Scheduled"}, {"running", "Running"}}

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
