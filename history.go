package worqr

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/store"
)

// History returns what happened on the queue, in periods of a minute or of an hour, from the one that has from up to, but
// not including, to; oldest first. Minutes are kept for 25 hours, hours for 61 days; of others, and beyond what is kept,
// nothing is recorded. Peers write what they have counted once a minute, so a task may be counted in the minute
// after. It fails with ErrInvalid for more than 1,500 periods. Handlers of OnFailed aren't counted.
func (q *Queue) History(ctx context.Context, from, to time.Time, grain time.Duration) ([]inspect.Period, error) {
	switch {
	case q.bad != nil:
		return nil, q.wrap("history", q.bad)
	case grain != time.Minute && grain != time.Hour:
		return nil, q.wrap("history", fmt.Errorf("%w: the periods are of a minute or of an hour, not %v", ErrInvalid, grain))
	case to.Sub(from)/grain >= store.MaxPeriods:
		return nil, q.wrap("history", fmt.Errorf("%w: a call returns at most %d periods", ErrInvalid, store.MaxPeriods))
	}
	all, err := store.History(ctx, q.peer.reads, q.keys, from, to, grain == time.Hour)
	return all, q.wrap("history", err)
}

// Deploys returns the versions of the service, and when the first worker with each started: the last 100, oldest first.
// A version that comes back keeps its first time. See Options.Version.
func (p *Peer) Deploys(ctx context.Context) ([]inspect.Deploy, error) {
	if p.bad != nil {
		return nil, wrap("deploys", p.bad)
	}
	all, err := store.Versions(ctx, p.reads, p.space)
	return all, wrap("deploys", err)
}

// built returns the name and the version of this program's module, or its VCS revision; "" if the build has neither.
func built() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	version := strings.TrimSuffix(info.Main.Version, "(devel)")
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && version == "" {
			version = s.Value[:min(len(s.Value), 12)]
		}
	}
	if version == "" {
		return ""
	}
	version = path.Base(info.Main.Path) + " " + version
	return version[:min(len(version), longestVersion)]
}
