package worqr

import (
	"errors"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/doctor"
)

// Judge returns what a look at a fleet shows, worst first. It needs no Redis: fill in what Stats, Workers, Server and
// Notes have returned. The dashboard and worqr top use it, and so does Check, which also reads all keys.
// inspect.Fold turns the findings into a line for each cause.
func Judge(s inspect.Sight) []inspect.Finding {
	all := doctor.Judge(&s)
	if errors.Is(s.Err, ErrShutdown) {
		all[0].Title, all[0].Severity = "This process is shutting down", inspect.SeverityNotice
	}
	return all
}
