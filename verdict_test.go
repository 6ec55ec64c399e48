package worqr_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/worqr/worqr"
)

// What a handler returns stays an error like any other, and tells what it does.
func TestVerdicts(t *testing.T) {
	is := parallel(t)
	no := errors.New("no")
	for _, err := range []error{worqr.Permanent(no), worqr.Malformed(no), worqr.RetryAfter(no, time.Hour)} {
		is.True(errors.Is(err, no))
		is.Equal(err.Error(), "no")
		is.True(!worqr.IsSnooze(err))
	}
	is.True(worqr.IsPermanent(fmt.Errorf("so: %w", worqr.Permanent(no))) && !worqr.IsMalformed(worqr.Permanent(no)))
	is.True(worqr.IsPermanent(worqr.Malformed(no)) && worqr.IsMalformed(worqr.Malformed(no)))
	is.True(!worqr.IsPermanent(nil) && !worqr.IsMalformed(no) && !worqr.IsPermanent(worqr.RetryAfter(no, 0)))
	is.True(worqr.IsSnooze(worqr.Snooze(time.Minute)) && !worqr.IsPermanent(worqr.Snooze(time.Minute)))
	is.Equal(worqr.Snooze(time.Minute).Error(), "it starts again in 1m0s")
}
