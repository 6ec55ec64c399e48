package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr"
)

func TestCancelReportInLog(t *testing.T) {
	is := parallel(t)
	q := working(t, open(t, worqr.Options{}), "q")
	enqueue(t, q, "a", "a")
	task := take(t, q)
	report := sure(q.Cancel(t.Context(), []byte("a")))(t)
	is.True(strings.Contains(fmt.Sprint(report), "removed=1 running=1"))
	is.NoErr(task.Stop(t.Context()))
	is.NoErr(report.Wait(t.Context()))
}
