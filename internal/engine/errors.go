package engine

import "errors"

// Errors that the root package exports under the same names.
var (
	ErrNoTask       = errors.New("worqr: no task")
	ErrNotWorking   = errors.New("worqr: this worker doesn't serve the queue")
	ErrNotOwner     = errors.New("worqr: this worker no longer holds the task; another may be running it")
	ErrEvicted      = errors.New("worqr: worker evicted")
	ErrLeaseExpired = errors.New("worqr: lease expired: Redis didn't answer in time")
	ErrCanceled     = errors.New("worqr: the task was canceled")
	ErrTimeout      = errors.New("worqr: the attempt took too long")
	ErrShutdown     = errors.New("worqr: the peer is shutting down")
)
