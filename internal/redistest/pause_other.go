//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// Pause stops a child where the system can do that.
func Pause(*os.Process) error { return errors.ErrUnsupported }

// Resume lets a process go on that was paused.
func Resume(*os.Process) error { return errors.ErrUnsupported }
