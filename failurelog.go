package worqr

// A FailureLog says which failures of handlers a peer logs.
type FailureLog int

const (
	// LogLimited logs up to 20 failures a second for a queue and 50 for the peer, then their
	// number.
	LogLimited FailureLog = iota
	// LogAll logs each failure, as far as the Logger keeps up.
	LogAll
	// LogPanics logs panics only, as LogLimited does.
	LogPanics
)
