package dash

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
)

// A filter picks failed tasks.
type filter struct {
	kind    string
	reason  *expression // of their error; nil is any
	payload *expression // of their payload as it's shown
	group   string      // the id of a group; "" is any
	key     string
	from    time.Time // failed at that time or later; zero is any
	header  string    // its name; "" is any
	value   string    // of the header; "" is any
}

// filtered returns the filter of a query. It's never nil.
func filtered(query url.Values) (*filter, error) {
	f := &filter{kind: query.Get("kind"), group: query.Get("group"), key: query.Get("key")}
	for name, of := range map[string]**expression{"reason": &f.reason, "payload": &f.payload} {
		if text := query.Get(name); text != "" {
			var err error
			if *of, err = compiled(name, text); err != nil {
				return f, err
			}
		}
	}
	name, value, _ := strings.Cut(query.Get("header"), ":")
	f.header, f.value = strings.TrimSpace(name), strings.TrimSpace(value)
	if f.header == "" && query.Get("header") != "" { // without a name, it would match all
		return f, errors.New("the header has no name; write name: value")
	}
	if text := query.Get("since"); text != "" {
		since, err := time.ParseDuration(text)
		if err != nil || since <= 0 {
			return f, fmt.Errorf("%q isn't a positive duration, such as 30m or 24h", line(text, 40))
		}
		f.from = time.Now().Add(-since)
	}
	return f, nil
}

func (f *filter) any() bool { return *f == filter{} }

// picks reports whether a task matches. See expression.matches about goOn.
func (f *filter) picks(d *dashboard, queue string, t *inspect.FailedTask, goOn func() error) (bool, error) {
	if f.kind != "" && f.kind != string(t.Kind) || f.key != "" && f.key != t.Key || t.FailedAt.Before(f.from) || !f.headed(t) ||
		f.group != "" && f.group != groupOf(t) {
		return false, nil
	}
	if f.reason != nil {
		if ok, err := f.reason.matches(t.Error[:min(len(t.Error), shownPayload)], goOn); !ok || err != nil {
			return false, err
		}
	}
	if f.payload != nil {
		return f.payload.matches(d.payload(queue, t.Payload, shownPayload), goOn)
	}
	return true, nil
}

func (f *filter) headed(t *inspect.FailedTask) bool {
	value, ok := t.Headers[f.header]
	return f.header == "" || ok && (f.value == "" || f.value == value)
}

// alike returns the error of a task without the parts that differ between errors with the same cause.
func alike(t *inspect.FailedTask) string { return line(t.Cause(), 140) }

// groupOf returns the id of a task's group: the same kind, and errors with the same cause.
func groupOf(t *inspect.FailedTask) string {
	sum := sha256.Sum256([]byte(string(t.Kind) + "\x00" + alike(t)))
	return hex.EncodeToString(sum[:6])
}
