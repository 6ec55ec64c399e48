package worqr_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// Listings and counts include ready tasks, listed tasks and later tasks, even if each fills several
// pages.
func TestListings(t *testing.T) {
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
	var all []string
	for _, n := range named(t, q) {
		all = append(all, string(n.Payload))
	}
	is.Equal(all, slices.Concat(due, later))
	is.Equal(waiting(t, q), numbers("list", 250))
	is.Equal(stats(t, q).Waiting, 500)
	is.Equal(stats(t, q).Scheduled, 250)
}
