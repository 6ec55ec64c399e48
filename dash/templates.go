package dash

import (
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/words"
)

var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/*.html"))
})

// functions are those available to templates.
var functions = template.FuncMap{
	"amount": amount, "count": words.Grouped, "line": line, "link": link, "several": words.Counted, "size": size, "span": span, "text": printable, "versioned": versioned,
	"ago":    func(t time.Time) string { return span(time.Since(t)) + " ago" },
	"breaks": breaks,
	"bytes":  func(n int64) string { return size(int(n)) },
	"clock":  func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"counted": func(at time.Time, n int) string {
		if at.IsZero() {
			return "–" // it was never read
		}
		return words.Grouped(n)
	},
	"columns": func() []column { return columns },
	"due":     due,
	"escaped": url.QueryEscape,
	"int":     func(n int64) int { return int(n) },
	"lease":   lease,
	"level":   level,
	"named":   func(key, payload string) bool { return key != "" && (payload == "" || !generated.MatchString(key)) },
	"pace":    func(f float64) string { return measure(f, "/s") },
	"queueof": queueOf,
	"plus":    func(a, b int) int { return a + b },
	"percent": func(part, of int64) int64 { return 100 * part / max(of, 1) },
	"silent":  func(w inspect.Worker) bool { return w.Lease > 0 && time.Since(w.LastHeartbeat) > w.Lease },
	"since":   func(t time.Time) string { return span(time.Since(t)) },
	"spans":   func() []pastSpan { return pastSpans },
	"tabs":    func() []tab { return tabs },
}

// generated matches the keys that Add makes: the payload says more about such a task.
var generated = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

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

// breaks returns text that may break after the punctuation of JSON and links, rather than within a word.
func breaks(text string) template.HTML {
	var b strings.Builder
	for i, r := range text {
		b.WriteString(template.HTMLEscapeString(string(r)))
		if strings.ContainsRune(",:;/?&|_", r) && i > 0 {
			b.WriteString("<wbr>")
		}
	}
	return template.HTML(b.String()) //nolint:gosec // each character is escaped
}
