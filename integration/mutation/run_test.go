package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
)

// A process that is asked to end cleans up first.
func TestUntilSignal(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		is := is.New(t)
		ctx, stop := untilSignal(t.Context())
		is.NoErr(syscall.Kill(os.Getpid(), s))
		<-ctx.Done()
		stop()
	}
}

// A canceled run leaves no processes that its tests have started, and no files.
func TestRunEnds(t *testing.T) {
	is := is.New(t)
	dir := filepath.Join(t.TempDir(), "mutant")
	is.NoErr(os.MkdirAll(filepath.Join(dir, "internal", "store"), 0o755))
	ear := filepath.Join(dir, "ear")
	is.NoErr(syscall.Mkfifo(ear, 0o600))
	s := &stand{root: dir, dir: dir, binary: filepath.Join(dir, "test")}
	is.NoErr(os.WriteFile(s.binary, []byte("#!/bin/sh\n(exec >"+ear+"; echo up; exec sleep 1000) & wait"), 0o700))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := s.run(ctx, dir, time.Hour)
		ended <- err
	}()
	heard, err := os.Open(ear)
	is.NoErr(err)
	_, err = io.ReadFull(heard, make([]byte, len("up\n")))
	is.NoErr(err)
	cancel()
	is.True(<-ended != nil)
	_, err = heard.Read(make([]byte, 1)) // waits for the last process that could write
	is.Equal(err, io.EOF)
	remove(dir)
	_, err = os.Stat(dir)
	is.True(os.IsNotExist(err))
}
