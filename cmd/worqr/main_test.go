package main

import (
	"os"
	"testing"
	"time"

	"github.com/worqr/worqr/internal/redistest"
)

// asCommand is the environment variable that makes the test binary run the command.
const asCommand = "WORQR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	patienceOfShells = time.Minute // a busy machine may need more than a user would wait
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(redistest.Main(m.Run))
}
