package main

import (
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/peertest"
)

// raw is invalid UTF-8 followed by U+FFFD. The two must not be confused.
const raw = "\xfe\xff\ufffd"

// Payloads, keys and headers arrive byte for byte.
func TestRawArguments(t *testing.T) {
	s := newShell(t)
	q := s.peer.Queue("q")
	s.run(exitWell, "enqueue", "q", raw, "")
	s.run(exitWell, "enqueue", "q", "p"+raw, "--header", "h="+raw+"=b")
	s.run(exitWell, "enqueue", "q", "k"+raw, "--key", "key"+raw, "--in", "1h")
	s.is.Equal(peertest.Waiting(t, q), []string{raw, ""})
	named := peertest.Named(t, q)
	s.is.Equal([]string{string(named[0].Payload), string(named[1].Payload)}, []string{"p" + raw, "k" + raw})
	s.is.Equal(named[0].Headers, map[string]string{"h": raw + "=b"})
	s.is.Equal(named[1].Key, "key"+raw)
	s.run(exitWell, "explain", "q", raw)
	s.run(exitWell, "explain", "q", "--header", "h="+raw+"=b")
	s.run(exitUnwell, "explain", "q", strings.ToValidUTF8(raw, "\ufffd"))
	s.run(exitWell, "remove", "q", "key"+raw)
	s.run(exitWell, "cancel", "q", raw)
}

// A number below zero is the value of a flag, as in the library's options, and not another flag.
func TestNegativeNumbers(t *testing.T) {
	s := newShell(t)
	s.run(exitWell, "enqueue", "q", "a", "--max-retries", "-1")
	s.is.Equal(len(s.rows(exitWell, "tasks", "q", "-n", "-1")), 1)
	s.run(exitWell, "cancel", "q", "b", "--wait", "-1s")
	for flag, args := range map[string][]string{
		"a duration may not be negative": {"enqueue", "q", "b", "--in", "-1s"}, "--concurrency must be at least 1": {"work", "q", "-c", "-1", "--", "true"},
		"can't be negative": {"work", "q", "--keep-failed", "-1", "--", "true"},
	} {
		s.is.True(strings.Contains(s.run(exitFailed, args...), flag))
	}
	s.run(exitFailed, "enqueue", "q", "--unique", "-1") // after a flag without a value, it looks like one
}
