package store

import (
	"fmt"
	"strings"
	"testing"
)

// Explain finds the copies of a payload, or of a name, wherever they are.
func TestExplain(t *testing.T) {
	t.Parallel()
	show := func(p *Whereabouts) string {
		var all []string
		for _, n := range p.Before {
			all = append(all, fmt.Sprint("list ", n))
		}
		for _, a := range p.Names {
			where := "nowhere"
			switch {
			case a.Attempt != "":
				where = fmt.Sprintf("%s %d", a.Attempt, a.Token)
			case a.facts.Ready:
				where = fmt.Sprint("ready ", a.Before)
			case a.IsRisky():
				where = fmt.Sprint("risky ", a.Before)
			case a.At > 0:
				where = fmt.Sprint("schedule ", a.Before)
			}
			if a.Returned {
				where += " returned"
			}
			if a.Behind != nil {
				where += fmt.Sprint(" behind ", a.Behind.At)
			}
			if a.Asserted > 0 {
				where += " asserted"
			}
			all = append(all, strings.TrimSpace(fmt.Sprint(where, " ", a.Retries, " ", a.Crashes, " ", a.Error)))
		}
		for _, f := range p.Failed {
			all = append(all, fmt.Sprintf("failed %s %s %t", f.Record.Failure.Kind, f.Record.Failure.Error, f.IsAside()))
		}
		return strings.Join(all, "; ")
	}
	for _, c := range []struct{ seed, of, want string }{
		{"", "x", "list 0"},
		{"LPUSH queues x z x", "x", "list 0; list 2; list 4"},
		{"", "nothing", ""},
		{"", "k:nothing", ""},
		{"", "b", "w.1.9.3n 5 1 0 why"},
		{"", "c", "risky 0 0 0"},
		{"", "k:run", "w.1.9.2n -4 behind 0 0 1"},
		{"HSET next k:run 99:never:0:0:1:0:0:0:0:0:B", "k:run", "w.1.9.2n -4 behind 99 0 1"},
		{"", "k:ready", "ready 0 0 0"},
		{"ZADD ready -7 k:other", "k:ready", "ready 1 0 0"},
		{"ZADD ready -7 k:ready", "k:ready", "ready 0 returned 0 0"},
		{"", "k:later", "schedule 1 2 0 why"},
		{"", "k:plan", "schedule 0 asserted 0 0"},
		{"HSET tasks u:<a> 1:0:0:0:0:0:a ; ZADD ready 9 u:<a>", "a", "ready 1 0 0"},
		{"HSET failed.tasks r:<a>:7 0:0:0:0:0:31:crashed:9:w:w.1.1.1:0:0:0:3:whya ; ZADD failed.copies 0 r:<a>:7", "a", "failed crashed why false"},
		{"HSET failed.tasks u:<a>#7 0:0:0:0:0:30:failed:9:w:w.1.1.1:0:0:0:3:whya ; ZADD failed.aside 1 u:<a>#7", "a", "failed failed why true"},
		{"HSET failed.tasks k:x#7 0:0:0:0:0:30:failed:9:w:w.1.1.1:0:0:0:3:olda ; ZADD failed.ready 1 k:x#7 ; " +
			"HSET failed.tasks k:x@123#8 0:0:0:0:0:30:failed:9:w:w.1.1.1:0:0:0:3:newa ; ZADD failed.ready 2 k:x@123#8", "k:x",
			"failed failed new false; failed failed old false"},
	} {
		t.Run(c.seed+" "+c.of, func(t *testing.T) {
			b := newBench(t)
			b.plant(sound...)
			if c.seed != "" {
				b.plant(strings.Split(c.seed, " ; ")...)
			}
			name, payload := "", []byte(c.of)
			if KeyOf(c.of) != "" {
				name, payload = c.of, nil
			}
			p, err := Explain(t.Context(), b.line, b.q, name, payload, 10, 100)
			b.is.NoErr(err)
			b.is.Equal(show(p), c.want)
			b.is.Equal(p.Queue.Members, 1)
		})
	}
}

// It says what state the queue is in, and finds no more copies, and no deeper, than it's asked.
func TestExplainQueue(t *testing.T) {
	b := newBench(t)
	b.plant(sound...)
	b.plant("HSET state paused 5:me", "ZADD ready -3 k:returned", "ZADD schedule 1 k:due")
	p, err := Explain(t.Context(), b.line, b.q, "", []byte("y"), 10, 1)
	b.is.NoErr(err)
	b.is.Equal(p.Before, nil) // y is the second one
	q := p.Queue
	b.is.True(q.Now > 0)
	q.Now = 0
	b.is.Equal(q, Queue{
		Token: 9, Fence: 1, Place: 9, Lease: 60000, Paused: "5:me", Listed: 2, Ready: 2, Returned: 1, Risky: 1, Due: 1,
		LastPlace: 5, Members: 1, Alive: 1, Leaving: 1, Idle: 1,
	})
}
