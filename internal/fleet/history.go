package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/worqr/worqr/internal/counts"
	"github.com/worqr/worqr/internal/store"
)

const (
	recordEvery   = time.Minute
	recordTimeout = 5 * time.Second
	// unrecorded is how long counts are kept that Redis refuses: they'd be shown at the time when it takes them.
	unrecorded = time.Hour
)

// A written has what the history of a queue has been told.
type written struct {
	counts.Tally
	failing time.Time // when the first call of those that failed since then was made; zero: the last one didn't fail
}

// record writes the histories of queues, until the worker ends. It begins at a random time, so that not all peers do it at
// once.
func (w *worker) record() {
	f, noted := w.fleet, w.fleet.Service == ""
	timer := time.NewTimer(rand.N(recordEvery))
	defer timer.Stop()
	for {
		if !noted {
			err := store.NoteVersion(w.ctx, f.Lines.Calls, f.Space, f.Service)
			if noted = err == nil; !noted {
				f.Log.Debug("worqr: noting the version of the service", "err", err)
			}
		}
		select {
		case <-w.ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(recordEvery)
		f.record(w.ctx, recordTimeout, w.busy())
	}
}

// busy returns the ids of queues of which the last heartbeat had something to record.
func (w *worker) busy() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, m := range w.members {
		if m.busy {
			ids = append(ids, id)
		}
	}
	return ids
}

// record writes the histories of queues on which something was counted, and of the given ones, unless it's doing that.
func (f *Fleet) record(ctx context.Context, timeout time.Duration, busy []string) {
	select {
	case f.recording <- struct{}{}:
		defer func() { <-f.recording }()
	default:
		return
	}
	now, tallies := time.Now(), f.Engine.Counts.Tallies()
	var ids []string
	var queues []*store.Shared
	var news []store.Recorded
	for id, tally := range tallies {
		name, failed := nameOf(id)
		fresh := tally.Since(f.written[id].Tally)
		if failed || fresh == (counts.Tally{}) && !slices.Contains(busy, id) {
			continue
		}
		ids, queues, news = append(ids, id), append(queues, store.SharedOf(f.Space.Queue(name))), append(news, store.Recorded(fresh))
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var first error
	for i, err := range store.RecordAll(ctx, f.Lines.Calls, queues, news) {
		of := written{tallies[ids[i]], time.Time{}}
		if err != nil && !errors.Is(err, store.ErrUnknown) {
			if of.failing = f.written[ids[i]].failing; of.failing.IsZero() {
				of.failing = now
			}
			if now.Sub(of.failing) < unrecorded {
				of.Tally = f.written[ids[i]].Tally
			}
		}
		f.written[ids[i]] = of
		if first == nil && err != nil {
			first = f.Describe("record", ids[i], err)
		}
	}
	if len(ids) > 0 && ctx.Err() == nil {
		f.unwritten.Note(f.Log, "can't write the history of queues; what is counted is kept for an hour", first)
	}
}
