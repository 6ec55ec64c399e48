package dash

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/causes"
)

// A filter picks failed tasks.
type filter struct {
	kind    string
	reason  *regexp.Regexp // of their error; nil is any
	payload *regexp.Regexp // of their payload as it's shown
	group   string         // the id of a group; "" is any
	key     string
	from    time.Time // failed at that time or later; zero is any
	header  string    // its name; "" is any
	value   string    // of the header; "" is any
}

// filtered returns the filter of a query or a form. It's never nil.
func filtered(query url.Values) (*filter, error) {
	f := &filter{kind: query.Get("kind"), group: query.Get("group"), key: query.Get("key")}
	for name, of := range map[string]**regexp.Regexp{"reason": &f.reason, "payload": &f.payload} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		if len(text) > 200 {
			return f, fmt.Errorf("the expression for the %s is longer than 200 bytes", name)
		}
		expression, err := regexp.Compile("(?i)" + text)
		if err != nil {
			return f, fmt.Errorf("the expression for the %s isn't valid: %s", name, strings.Replace(strings.TrimPrefix(err.Error(), "error parsing regexp: "), "(?i)", "", 1))
		}
		*of = expression
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

// any reports whether the filter matches all tasks.
func (f *filter) any() bool { return *f == filter{} }

func (f *filter) picks(d *dashboard, queue string, t *inspect.FailedTask) bool {
	return (f.kind == "" || f.kind == string(t.Kind)) && (f.key == "" || f.key == t.Key) && !t.FailedAt.Before(f.from) && f.headed(t) &&
		(f.reason == nil || f.reason.MatchString(t.Error)) &&
		(f.group == "" || f.group == groupOf(t)) &&
		(f.payload == nil || f.payload.MatchString(d.payload(queue, t.Payload, shownPayload)))
}

func (f *filter) headed(t *inspect.FailedTask) bool {
	value, ok := t.Headers[f.header]
	return f.header == "" || ok && (f.value == "" || f.value == value)
}

// alike returns an error without the parts that differ between errors with the same cause.
func alike(err string) string { return line(causes.Of(err), 140) }

// groupOf returns the id of a task's group: the same kind, and errors with the same cause.
func groupOf(t *inspect.FailedTask) string {
	sum := sha256.Sum256([]byte(string(t.Kind) + "\x00" + alike(t.Error)))
	return hex.EncodeToString(sum[:6])
}
