package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/words"
)

// The tasks that aren't first in, first out: the scheduled and the failing ones.

// backupKey is the key of the backup.
const backupKey = "nightly"

// schedule schedules the backup by the local clock.
func (p *play) schedule(ctx context.Context, due time.Time) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	p.tally.scheduled(backup.id, due)
	if err := p.queue.Put(ctx, backupKey, backup.payload(), &worqr.PutOptions{At: due.Add(p.ahead)}); err != nil {
		return err
	}
	p.tally.enqueued(backup.id)
	p.journal.add(plain, "", "%v is scheduled for %.1f s, under the key %q", backup, due.Sub(p.journal.began).Seconds(), backupKey)
	return nil
}

// bill enqueues the invoice, and waits until it is in the failed queue.
func (p *play) bill(ctx context.Context) error {
	if err := p.enqueue(ctx, invoice); err != nil {
		return err
	}
	return every(ctx, 20*time.Millisecond, func() (bool, error) {
		for t, err := range p.queue.Failed(ctx) {
			if err != nil {
				return false, err
			}
			if j, err := readJob(t.Payload); err == nil && j == invoice {
				p.tally.failed(j.id)
				p.journal.add(bad, "failed", "%v goes to the failed queue: %s", j, t.Error)
				return true, until(ctx, time.Now().Add(p.total/10)) // so that it is seen there
			}
		}
		return false, nil
	})
}

// repair gives the customer an address, and requeues the tasks that failed without one.
func (p *play) repair(ctx context.Context) error {
	if err := os.WriteFile(p.address, nil, 0o600); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	p.tally.fixed(invoice.id)
	n, err := p.queue.RequeueAllFailed(ctx)
	if err != nil {
		return err
	}
	if n != 1 {
		return fmt.Errorf("%s were requeued instead of only %v", words.Several(n, "task"), invoice)
	}
	p.journal.add(good, "requeued", "the customer has an address now, and %v is requeued", invoice)
	return nil
}
