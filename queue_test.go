package worqr_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// Listings and counts include due tasks, listed tasks and later tasks, even if each fills several
// pages.
func TestReadOutsOfBothLanes(t *testing.T) {
	is := parallel(t)
	q := open(t, worqr.Options{}).Queue("q")
	var due, later []string
	for i := range 250 {
		due, later = append(due, fmt.Sprint("due", i)), append(later, fmt.Sprint("later", i))
		add(t, q, worqr.TaskSpec{Key: later[i], Payload: []byte(later[i]), At: time.Now().Add(time.Hour + time.Duration(i)*time.Second)})
	}
	enqueue(t, q, numbers("list", 250)...)
	for i, payload := range due {
		add(t, q, worqr.TaskSpec{Key: payload, Payload: []byte(payload), At: time.UnixMilli(int64(1000 + i))})
	}
	is.Equal(waiting(t, q), slices.Concat(due, numbers("list", 250), later))
	is.Equal(len(scheduled(t, q)), 500)
	is.Equal(stats(t, q).Waiting+stats(t, q).Scheduled, 750)
}
