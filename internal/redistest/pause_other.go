//go:build !unix

package redistest

import (
	"errors"
	"os"
)

// Pause stops a child process on systems that support it.
func Pause(*os.Process) error { return errors.ErrUnsupported }

// Resume continues a paused process.
func Resume(*os.Process) error { return errors.ErrUnsupported }
