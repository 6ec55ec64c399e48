package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A phase says how far an operation got.
type phase string

// The phases. An operation that begins with invoke and has no other end was cut
// off: its outcome is unknown, too.
const (
	invoke  phase = "invoke"
	okay    phase = "ok"
	refused phase = "fail"    // it was not carried out
	unknown phase = "unknown" // it may have been
)

// The operations of peers and of the driver.
const (
	opUp      = "up"      // a peer runs, or goes on under another id
	opEnqueue = "enqueue" // Tasks
	opRun     = "run"     // a handler begins (invoke) and returns (ok)
	opEnded   = "ended"   // the context of a handler has ended; Note is the cause
	opFinish  = "finish"  // a handler finishes its task itself
	opCancel  = "cancel"  // of Tasks
	opWait    = "wait"    // for the end of Tasks; Note is what it was
	opKill    = "kill"    // of Peer, by the driver, and so the following
	opStop    = "stop"
	opCont    = "cont"
	opTerm    = "term"
	opCut     = "cut"  // of the link of Peer, or of all; Note is the kind
	opHeal    = "heal" // likewise
	opServer  = "server"
	opLate    = "late" // the machine has not let a peer, or the driver, run for Waited
)

// An event is one line of a history.
type event struct {
	Mono    int64     // ns of the monotonic clock, which all processes of the machine share
	Wall    time.Time // for people
	Peer    string    `json:",omitempty"`
	Worker  string    `json:",omitempty"`
	Op      string
	Phase   phase    `json:",omitempty"`
	Tasks   []string `json:",omitempty"`
	Process string   `json:",omitempty"`
	Token   int64    `json:",omitempty"`
	Note    string   `json:",omitempty"`
	Waited  int64    `json:",omitempty"` // ns
}

// mono reads the monotonic clock.
func mono() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // this clock is always there
	return t.Nano()
}

// A journal is the history of one process. Each event is written at once, so it
// is there also when the process is killed the moment after.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

const journalEnding = ".jsonl"

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a journal: %w", err)
	}
	return &journal{file: f}, nil
}

func (j *journal) say(e event) {
	e.Wall = time.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Mono = mono()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // without its history a run proves nothing
	}
}

func (j *journal) close() { _ = j.file.Close() }

// readJournals returns all events of a directory in the order of time.
func readJournals(dir string) ([]event, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+journalEnding))
	if err != nil {
		return nil, err
	}
	var all []event
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		some, err := readEvents(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, some...)
	}
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.Mono, b.Mono) })
	return all, nil
}

// readEvents reads one journal, of which the last line may be cut off.
func readEvents(r io.Reader) (all []event, err error) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
}
