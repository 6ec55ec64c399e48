package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/worqr/worqr/internal/store"
)

// retry repeats a call while Redis refuses it for a reason that will pass: replicas are missing, as happens briefly after a
// failover, the slot is moving, or scripts were flushed. It stops after the time that a call may take.
func retry(ctx context.Context, within time.Duration, call func() error) error {
	began, pause := time.Now(), store.NewBackoff()
	for {
		err := call()
		left := within - time.Since(began)
		if !store.IsRepeatable(err) || left <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; the last answer was: %s", context.Cause(ctx), err)
		case <-time.After(min(pause.Next(), left)):
		}
	}
}
