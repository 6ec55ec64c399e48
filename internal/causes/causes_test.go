package causes

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestOf(t *testing.T) {
	is := is.New(t)
	for want, errs := range map[string][]string{
		"timeout after … ms":         {"timeout after 17 ms", "timeout after 1234 ms"},
		"no such mailbox: …":         {"no such mailbox: 1", "no such mailbox: 199999"},
		"user … is gone":             {"user 01a20b67-82ed-78c2-9035-2564aa196338 is gone", "user 01A20B67-8666-7a5d-bf87-6ba176caeada is gone"},
		"template “…” not found":     {`template "a" not found`, `template 'other' not found`},
		"dial tcp …: refused":        {"dial tcp 10.0.3.89:443: refused", "dial tcp 10.1.3.9:8443: refused"},
		"panic: x":                   {"panic: x\nstack 1", "panic: x\nstack 2"},
		"disk full":                  {"disk full"},
		"":                           {""},
		strings.Repeat("x", longest): {strings.Repeat("x", longest+1)},
	} {
		for _, err := range errs {
			is.Equal(Of(err), want)
		}
	}
}
