package logs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/logs"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	headers := map[string]string{"type": "charge\n", "request-id": "req-7", "secret": "canary", "empty": ""}
	none, all := &logs.Labels{}, &logs.Labels{Keys: true, Headers: []string{"request-id", "empty", "missing"}}
	is.Equal(fmt.Sprint(none.Add(nil, "key-7", headers)), `[type charge\n]`)
	is.Equal(fmt.Sprint(all.Add([]any{"a", 1}, "key-7", headers)), `[a 1 key key-7 type charge\n headers=[request-id=req-7 empty=]]`)
	is.Equal(len(all.Add(nil, "", nil))+len(none.Add(nil, "key-7", map[string]string{"a": "b"})), 0)
	for key, want := range map[string]string{
		"order-7":                "order-7",
		"a\x1b[2J\xffb":          "a\\x1b[2J�b",
		strings.Repeat("x", 100): strings.Repeat("x", 100),
		strings.Repeat("x", 101): strings.Repeat("x", 100) + "…",
		strings.Repeat("ä", 60):  strings.Repeat("ä", 50) + "…",
		strings.Repeat("€", 60):  strings.Repeat("€", 33) + "…",
	} {
		is.Equal(all.Add(nil, key, nil), []any{"key", want})
	}
}
