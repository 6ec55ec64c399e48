package worqr

// A FailureLog says which failures of handlers a peer logs.
type FailureLog int

const (
	// LogLimited logs each failure, up to 20 lines a second for a queue and 50 for
	// the peer; then one line at the end of the second says how many more there
	// were, by queue. Tasks that failed for good and tasks that will be retried have
	// separate limits. The first panic at each place in the code is always logged, with
	// its stack; repeated ones, up to 5 a second.
	LogLimited FailureLog = iota
	// LogAll logs each failure, as far as the Logger keeps up.
	LogAll
	// LogPanics logs panics only, as LogLimited does: for handlers that log their
	// errors themselves.
	LogPanics
)
