package main

import (
	"os"
	"testing"

	"github.com/worqr/worqr/internal/redistest"
)

// asCommand is the environment variable that makes the test binary run the command.
const asCommand = "WORQR_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(redistest.Main(m.Run))
}
