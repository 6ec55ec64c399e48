package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A job is what a task of the demo does. Its id is in the payload, so that tasks
// can be told apart and counted.
type job struct {
	id    int
	kind  string
	takes time.Duration
}

// The tasks of the story.
var (
	film    = job{1, "film", time.Hour}                 // too long to wait for
	mail    = job{2, "mail", 100 * time.Millisecond}    // its first attempts fail
	invoice = job{3, "invoice", 100 * time.Millisecond} // fails until it is repaired
	backup  = job{4, "backup", 100 * time.Millisecond}  // has a time
)

// flaws is how many attempts of the mail fail.
const flaws = 2

// photo is a short task. Durations differ, and are the same in each demo.
func photo(id int) job {
	return job{id, "photo", time.Duration(100+id*73%300) * time.Millisecond}
}

func (j job) payload() []byte {
	return fmt.Appendf(nil, "%d %s %v", j.id, j.kind, j.takes)
}

func readJob(payload []byte) (job, error) {
	fields := strings.Fields(string(payload))
	if len(fields) != 3 {
		return job{}, fmt.Errorf("the payload has %d words, not 3", len(fields))
	}
	id, err := strconv.Atoi(fields[0])
	if err != nil {
		return job{}, fmt.Errorf("the id of a job: %w", err)
	}
	takes, err := time.ParseDuration(fields[2])
	if err != nil {
		return job{}, fmt.Errorf("the duration of a job: %w", err)
	}
	return job{id, fields[1], takes}, nil
}

func (j job) String() string { return fmt.Sprintf("%s %03d", j.kind, j.id) }
