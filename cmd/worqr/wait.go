package main

import (
	"context"
	"time"
)

// every calls look, with pauses, until it reports that it has seen enough.
func every(ctx context.Context, pause time.Duration, look func() (enough bool, err error)) error {
	looks := time.NewTicker(pause)
	defer looks.Stop()
	for {
		if enough, err := look(); enough || err != nil {
			return err
		}
		select {
		case <-looks.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
