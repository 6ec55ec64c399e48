package doctor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
	"github.com/worqr/worqr/internal/store"
)

// explains returns what Explain says: for each copy its state and the reasons, and how many are before it.
func (w *ward) explains(name, payload string) string {
	w.Helper()
	q := Question{Runner: w.Runner, Space: w.Space, Queue: "q", Name: name, Payload: []byte(payload), Beat: w.Lease}
	e, err := q.Explain(w.Context())
	w.is.NoErr(err)
	var all []string
	for _, c := range e.Copies {
		line := fmt.Sprint(c.State, " ", c.Reasons)
		if c.Before > 0 {
			line += fmt.Sprint(" ", c.Before)
		}
		all = append(all, line)
	}
	if e.Recurs != nil {
		all = append(all, fmt.Sprintf("recurs %t", e.Recurs.Asserted))
	}
	if e.NoSuchQueue {
		all = append(all, "no such queue")
	}
	if strings.Contains(e.String(), "canary") {
		w.Errorf("it shows what is secret: %s", e)
	}
	return strings.Join(all, ", ")
}

// Explain says where a task is in each state, and why it doesn't run.
func TestExplainStates(t *testing.T) {
	t.Parallel()
	const (
		ready = "HSET tasks:{q} k:canary 1:0:0:0:0:0:canary ; ZADD ready:{q} 5 k:canary"
		later = "HSET tasks:{q} k:canary 1:0:0:0:0:0:canary ; ZADD schedule:{q} now+50000 k:canary"
		recur = "HSET recurrence:{q} k:canary 1|0:0:0:0:0:0: passed:k:canary 0 prints:k:canary 1"
		pause = " ; HSET state:{q} paused 1:me"
		busy  = " ; DEL idle:{q}"
	)
	sha := store.DigestOf([]byte("canary"))
	for _, c := range []struct{ plant, want string }{
		{"", ""},
		{"LPUSH queues:{q} canary", "waiting []"},
		{"LPUSH queues:{q} x canary ; " + ready, "waiting [behind] 2, waiting []"},
		{"LPUSH queues:{q} canary" + busy, "waiting [busy]"},
		{"LPUSH queues:{q} canary" + pause, "waiting [paused]"},
		{"LPUSH queues:{q} canary ; ZADD leaving:{q} 1 v", "waiting [held-up]"},
		{"LPUSH queues:{q} canary ; DEL workers:{q}", "waiting [no-worker]"},
		{ready, "waiting []"},
		{ready + busy, "waiting [busy]"},
		{ready + " ; ZADD ready:{q} 3 k:x -2 k:y", "waiting [behind] 2"},
		{later, "scheduled [not-due]"},
		{later + pause, "scheduled [not-due paused]"},
		{"HSET tasks:{q} k:canary 1:0:0:0:0:0:canary ; ZADD schedule:{q} 1 k:canary", "waiting []"},
		{"HSET tasks:{q} k:canary 1:0:0:0:0:0:canary ; ZADD risky:{q} 1 k:canary ; HSET runs:{q} k:canary :0:2:", "waiting [suspect]"},
		{"HSET tasks:{q} k:canary 1:5:0:0:1:0:canary ; ZADD schedule:{q} 5 k:canary ; ZADD recurring:{q} 1 k:canary ; " + recur, "scheduled [withheld], recurs false"},
		{later + " ; ZADD recurring:{q} now+9999 k:canary ; " + recur, "scheduled [not-due], recurs true"},
		{"HSET tasks:{q} u:" + sha + " 1:0:0:0:0:0:canary ; ZADD ready:{q} 5 u:" + sha, "waiting []"},
		{"HSET tasks:{q} r:" + sha + ":3 0:0:0:0:0:0:canary ; ZADD copies:{q} 0 r:" + sha + ":3 ; ZADD schedule:{q} now+50000 r:" + sha + ":3", "scheduled [not-due]"},

		{"RPUSH process:{q}:w1.1.9.3 canary ; ZADD working:{q}:w1 3 w1.1.9.3", "running []"},
		{"RPUSH process:{q}:w1.1.9.3 canary ; ZADD working:{q}:w1 -3 w1.1.9.3", "running [stopping]"},
		{"RPUSH process:{q}:w1.1.9.3 canary ; ZADD working:{q}:w1 3 w1.1.9.3 ; ZADD workers:{q} 1 w1", "running [lease-expired no-worker]"},
		{"RPUSH process:{q}:v.1.9.3 canary ; ZADD working:{q}:v 3 v.1.9.3 ; ZADD leaving:{q} 1 v", "running [returning]"},
		{ready + " ; ZREM ready:{q} k:canary ; HSET runs:{q} k:canary w1.1.9.3n:0:0: ; RPUSH process:{q}:w1.1.9.3n k:canary ; ZADD working:{q}:w1 3 w1.1.9.3n", "running []"},
		{ready + " ; ZREM ready:{q} k:canary ; HSET runs:{q} k:canary w1.1.9.3n:0:0: ; RPUSH process:{q}:w1.1.9.3n k:canary ; ZADD working:{q}:w1 3 w1.1.9.3n ; " +
			"HSET next:{q} k:canary 0:always:0:0:1:0:0:0:0:0:canary", "running [], blocked [blocked]"},

		{"HSET failed:tasks:{q} k:canary#1 1:0:0:0:0:38:failed:9:w:w.1.1.1:2:0:8:3:k:canarywhycanary ; ZADD failed:ready:{q} 1 k:canary#1", "failed [failed]"},
		{"HSET failed:tasks:{q} k:canary@123#8 1:0:0:0:0:38:failed:9:w:w.1.1.1:2:0:8:3:k:canarywhycanary ; ZADD failed:ready:{q} 1 k:canary@123#8", "failed [failed]"},
		{"HSET failed:tasks:{q} r:" + sha + ":1 1:0:0:0:0:31:crashed:9:w:w.1.1.1:0:2:0:3:whycanary ; ZADD failed:aside:{q} 1 r:" + sha + ":1 ; ZADD failed:copies:{q} 0 r:" + sha + ":1",
			"failed [failed aside]"},
	} {
		t.Run(c.plant, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, redistest.URL())
			w.plant("SADD registry q", "HSET worker:w1 name n host h pid 7 lease 60000", "HSET state:{q} token 5 place 5 lease 60000",
				"ZADD workers:{q} now+50000 w1", "HSET rounds:{q} w1 1", "ZADD idle:{q} 1 w1")
			if c.plant != "" {
				w.plant(strings.Split(c.plant, " ; ")...)
			}
			var said []string
			for _, s := range []string{w.explains("", "canary"), w.explains("k:canary", "")} {
				if s != "" {
					said = append(said, s)
				}
			}
			w.is.Equal(strings.Join(said, ", "), c.want)
		})
	}
}

// The answer about several tasks has all their copies.
func TestMerge(t *testing.T) {
	t.Parallel()
	w := newWard(t, redistest.URL())
	e := &inspect.Explanation{NoSuchQueue: true, Copies: []inspect.TaskCopy{{Key: "a"}}}
	Merge(e, &inspect.Explanation{Workers: 2, Copies: []inspect.TaskCopy{{Key: "b"}}})
	w.is.Equal([]any{len(e.Copies), e.Workers, e.NoSuchQueue}, []any{2, 2, false})
}
