package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestSummarySaysWhatIsLost(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	is.NoErr(summary{Enqueued: 3, Finished: 1, Lost: 2, Gaps: 1}.print(&out, style{}))
	is.Equal(figures(t, out.String())["lost"], 2)
	is.True(strings.Contains(out.String(), "missed"))
}
