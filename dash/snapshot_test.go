package dash_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/peertest"
	"github.com/worqr/worqr/internal/redistest"
)

// A damaged queue has a banner, and the others their counts.
func TestDamagedQueue(t *testing.T) {
	is := parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := peertest.OpenDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix, Lease: 200 * time.Millisecond})
	peertest.Enqueue(t, p.Queue("bad"), "x")
	peertest.Enqueue(t, p.Queue("well"), "x", "y")
	redistest.Do(t, conn, "SET", prefix+":workers:{bad}", "x")
	redistest.Do(t, conn, "SET", prefix+":recurring:{bad}", "x")
	b := browse(t, p, nil)
	r := b.shows("", "2 tasks are waiting", "A queue can&#39;t be read", "WRONGTYPE")
	is.True(!strings.Contains(r.text, "Redis can&#39;t be reached"))
	b.shows("queue?name=well", "<code>x</code>")
	b.shows("recurring", "can’t be read: queue &#34;bad&#34;: ", "WRONGTYPE")
}

// What can't be read is said: the pages don't ignore silences without a word.
func TestDamagedNotes(t *testing.T) {
	parallel(t)
	prefix, conn := redistest.Prefix(t), redistest.Conn(t)
	p := peertest.OpenDoctor(t, redistest.URL(), worqr.Options{Prefix: prefix})
	peertest.Enqueue(t, p.Queue("q"), "x")
	b := browse(t, p, &dash.Options{Interval: 100 * time.Millisecond})
	peertest.Must(t, p.Silence(t.Context(), inspect.Silence{Kind: "no-worker", Reason: "known", Until: time.Now().Add(time.Hour)}))
	b.shows("", "Silenced: No worker")
	redistest.Do(t, conn, "EVAL", "for i = 1, 10000 do redis.call('HSET', KEYS[1], i, 1) end", 1, prefix+":notes") // by another program
	b.shows("", "Silences can’t be read, so some may be missing: ", "fields, more than worqr writes", "Silenced: No worker")
}

// While a node of a cluster is frozen, its queues have banners, and those of the other nodes stay up
// to date.
func TestFrozenNode(t *testing.T) {
	is := parallel(t)
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	p := redistest.Sure(worqr.Open(c.URL(), &worqr.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(func() { _ = p.Close() })
	registry := c.Owner(t, c.Slot(t, "worqr:registry"))
	frozen := c.Nodes[0]
	if frozen == registry {
		frozen = c.Nodes[1]
	}
	var bad, well []string
	for i := range 30 {
		name := fmt.Sprint("queue-", i)
		peertest.Enqueue(t, p.Queue(name), "x")
		if c.Owner(t, c.Slot(t, "{"+name+"}")) == frozen {
			bad = append(bad, name)
		} else {
			well = append(well, name)
		}
	}
	is.True(len(bad) > 0 && len(well) > 0)
	b := browse(t, p, &dash.Options{AllowActions: true, Interval: 100 * time.Millisecond})
	b.shows("", "30 tasks are waiting")
	frozen.Pause(t)
	defer frozen.Resume(t)
	r := b.shows("?sort=name", "no answer in time")
	is.True(!strings.Contains(r.text, "Redis can&#39;t be reached"))
	peertest.Enqueue(t, p.Queue(well[0]), "y")
	b.shows("", fmt.Sprint(len(well)+1, " tasks are waiting"))
	b.shows("queue?name="+well[0], "<code>y</code>")
}
