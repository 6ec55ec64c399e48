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
