package dash

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

type serverBody struct {
	Check     checkState
	Large     bool          // the fleet: it isn't checked automatically
	Answer    time.Duration // of Redis
	PingError string
	Took      time.Duration
	Redis     inspect.ServerStats
	Name      string    // of this process's worker
	Worker    string    // this process's worker id; "" if it isn't a worker
	Ready     string    // why it isn't ready; "" if it is
	Beat      time.Time // its last heartbeat
	Stats     inspect.PeerStats
	Version   string
	Lines     []inspect.Line // of the check's findings
	Levels    map[string]int // how many of them there are
}

func (d *dashboard) server(ctx context.Context, now *snapshot, query url.Values) (*page, error) {
	body := &serverBody{Check: d.check.state(), Large: now.Total.tasks() > mostChecked, Took: now.Took, Stats: d.peer.Stats(), Version: worqr.Version, Redis: now.Server}
	begun := time.Now()
	if err := d.peer.Ping(ctx); err != nil {
		body.PingError = printable(err.Error())
	}
	body.Answer = time.Since(begun)
	ready := d.peer.Ready()
	if !errors.Is(ready, worqr.ErrNotStarted) {
		body.Worker = d.peer.WorkerID()
		body.Beat, body.Name = d.peer.LastBeat(), body.Worker
		if w := now.worker(body.Worker); w != nil {
			body.Name = w.Name
		}
	}
	if ready != nil {
		body.Ready = printable(strings.TrimPrefix(ready.Error(), "worqr: "))
	}
	if body.Check.Report != nil {
		body.Lines, body.Levels = inspect.Fold(body.Check.Report.Findings), map[string]int{}
		for _, l := range body.Lines {
			body.Levels[bannerOf(l).Level]++
		}
	}
	return &page{Name: "server", Tab: "server", Heading: "Server", Query: query, Now: now, Banners: d.banners(now, ""), Live: []string{"server-state", "findings"}, Body: body}, nil
}
