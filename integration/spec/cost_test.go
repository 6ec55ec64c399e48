package spec

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/matryer/is"

	"github.com/worqr/worqr/internal/store"
)

// The costs of starting tasks are those in step.lua.
func TestCosts(t *testing.T) {
	is := is.New(t)
	m := regexp.MustCompile(`(?m)^local COST = \{ (.*) \}$`).FindStringSubmatch(store.VerbOf("step").Source())
	is.Equal(len(m), 2)
	is.Equal(m[1], fmt.Sprintf("plain = %d, watched = %d, entry = %d, passed = %d, unstarted = %d, bytes = %d, card = %d",
		costPlain, costWatched, costEntry, costPassed, costUnstarted, bytesOfMicro, cardOfMicro))
}
