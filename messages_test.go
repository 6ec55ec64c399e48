package worqr

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/logs"

	"github.com/matryer/is"
)

// What is read where a number belongs may be a payload: no error and no line shows it.
func TestErrorsOfNumbers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	_, err := strconv.Atoi("canary")
	is.True(!strings.Contains(wrap("count", fmt.Errorf("of two: %w", err)).Error(), "canary"))
	var lines strings.Builder
	l := logs.New(slog.New(slog.NewTextHandler(&lines, nil)))
	l.Warn("worqr: cannot start or finish tasks", "err", err)
	l.Flush()
	is.True(strings.Contains(lines.String(), "where one was expected"))
	is.True(!strings.Contains(lines.String(), "canary"))
}
