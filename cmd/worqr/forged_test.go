package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// Whoever can write to Redis can neither send control characters to the terminal, nor make a command
// fail for everything else.
func TestForgedRecords(t *testing.T) {
	s := newShell(t)
	ctx, conn := t.Context(), redistest.Conn(t)
	q := peertest.Working(t, s.peer, "q")
	s.fail(q, "sound", "no", nil)
	s.fail(q, "forged", "no", nil)
	key := func(kind string) string { return s.args[3] + ":" + kind + ":{q}" }
	const esc, far = "\x1b[2J\u009b", "9223372036854775807"
	set := func(args ...any) { redistest.Do(t, conn, args[0].(string), args[1:]...) }

	for i, record := range []string{
		"fin" + esc + "ished:17:0:", "finished:" + far + ":0:", "finished:-17:0:", ":17:0:", "finished:17:+0:",
	} {
		set("SET", key("result")+":k:"+fmt.Sprint(i), record, "EX", 600)
		s.is.True(strings.HasPrefix(s.run(exitUnwell, "result", "q", fmt.Sprint(i)), "worqr: "))
	}
	set("SET", key("result")+":k:good", "failed:17:11:"+esc+"reason", "EX", 600)

	for f := range redistest.Each(t, q.Failed(ctx)) {
		if string(f.Payload) == "forged" {
			s.forgeFailure(f.ID, func(failure []string) {
				copy(failure, []string{esc, far, esc, esc, "-987654", "-987654", failure[6], esc})
			})
		}
	}
	id := s.peer.WorkerID()
	worker := s.args[3] + ":worker:" + id
	set("HSET", worker, "name", esc, "host", esc, "pid", -987654, "version", esc, "started", far, "queues", `["`+esc[1:]+`"]`, "lease", leastLease, "stuck", -987654)
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: esc, Payload: []byte(esc), Headers: map[string]string{esc: esc}}))(s.T)
	peertest.Take(t, q)
	redistest.Sure(q.Add(ctx, worqr.TaskSpec{Key: "later" + esc, Payload: []byte(esc)}))(s.T)
	set("ZADD", key("recurring"), "9e15", "k:"+esc)
	set("HSET", key("recurrence"), "k:"+esc, far+"|", "passed:k:"+esc, far, "last:k:"+esc, esc+":1:"+far)

	for _, c := range [][]string{
		{"result", "q", "good"}, {"failed", "q"}, {"failed", "q", "--group"}, {"workers"}, {"queues"}, {"running", "q"}, {"tasks", "q"},
		{"recurring", "q"}, {"explain", "q", "forged"}, {"explain", "q", "--key", esc},
	} {
		text, _ := s.forged(c)
		if strings.ContainsAny(text, "\x1b\u009b") || strings.Contains(text, "-987654") {
			t.Errorf("%q prints what is forged: %q", c, text)
		}
		text, rows := s.forged(append(c, "--json"))
		if strings.ContainsAny(text, "\x1b\u009b") || strings.Contains(text, ":-987654") || rows == 0 {
			t.Errorf("%q prints what is forged: %q", c, text)
		}
	}
	s.is.Equal(len(s.rows(exitWell, "failed", "q")), 2)
}

// leastLease is a number of ms that is the least duration there is, in ns: it has no positive
// counterpart.
const leastLease = "144115188075855872"

// forged calls a command, which may find something wrong, but doesn't fail, and counts its JSON rows.
func (s *shell) forged(args []string) (text string, rows int) {
	s.Helper()
	var out, errs strings.Builder
	if status := run(append(args, s.args...), strings.NewReader(""), &out, &errs); status == exitFailed {
		s.Errorf("%q fails: %s", args, errs.String())
	}
	for line := range strings.Lines(out.String()) {
		if json.Valid([]byte(line)) {
			rows++
		}
	}
	return out.String() + errs.String(), rows
}

// forgeFailure changes what Redis has of a failed task: kind, when, worker, attempt, retries, crashes, the name to go
// back to, and the error.
func (s *shell) forgeFailure(id string, forge func(failure []string)) {
	s.Helper()
	conn, key := redistest.Conn(s.T), s.args[3]+":failed:tasks:{q}"
	name := redistest.Sure(url.PathUnescape(id))(s.T)
	record := strings.SplitN(redistest.Sure(redis.String(conn.Do("HGET", key, name)))(s.T), ":", 7)
	size := redistest.Sure(strconv.Atoi(record[5]))(s.T)
	metadata, payload := strings.SplitN(record[6][:size], ":", 9), record[6][size:]
	texts := metadata[8]
	back, end := redistest.Sure(strconv.Atoi(metadata[6]))(s.T), redistest.Sure(strconv.Atoi(metadata[7]))(s.T)
	failure := append(metadata[:6:6], texts[:back], texts[back:back+end])
	forge(failure)
	forged := fmt.Sprintf("%s:%d:%d:%s", strings.Join(failure[:6], ":"), len(failure[6]), len(failure[7]), failure[6]+failure[7]+texts[back+end:])
	redistest.Do(s.T, conn, "HSET", key, name, fmt.Sprintf("%s:%d:%s", strings.Join(record[:5], ":"), len(forged), forged+payload))
}
