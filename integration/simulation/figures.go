package simulation

import (
	"fmt"
	"reflect"
	"time"
)

// figures count what a run did to the fleet.
type figures struct {
	Simulated time.Duration
	Requests  int
	Kills, Pauses, Stops, Stalls, Restarts, Rollbacks, Wipes, Jumps, Flushes,
	Readonly, Full, Resets, Holes, Held, Partitions, Slow int
	Deaf, Copies, Late    int // links that broke before a reply; copies of requests; requests of links that were closed
	Zombies               int // pauses longer than a lease
	ByHand                int // workers that were evicted by a call
	Wake, Cancel, Recover time.Duration
	Due                   time.Duration // the longest time from a task's due time to its start
}

// addCounts adds all counts of one struct to another.
func addCounts[T any](to, from *T) {
	sum, more := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range sum.NumField() {
		if n := sum.Field(i); n.Kind() == reflect.Int {
			n.SetInt(n.Int() + more.Field(i).Int())
		}
	}
}

// A Report is the result of a run, or of several.
type Report struct {
	figures
	verdict
	Runs  int
	Wrong []string // violations
	Trace []byte   // the record of a run with violations
}

// Add adds the report of another run.
func (r *Report) Add(o *Report) {
	addCounts(&r.figures, &o.figures)
	addCounts(&r.verdict, &o.verdict)
	r.Simulated += o.Simulated
	r.Wake, r.figures.Cancel = max(r.Wake, o.Wake), max(r.figures.Cancel, o.figures.Cancel)
	r.Recover, r.Due = max(r.Recover, o.Recover), max(r.Due, o.Due)
	r.Runs += o.Runs
	r.Wrong = append(r.Wrong, o.Wrong...)
}

func (r *Report) String() string {
	return fmt.Sprintf(`%d runs, %.2f simulated hours, %d requests
processes: %d killed, %d paused (%d longer than a lease), %d stopped and replaced, %d failed by hand
server:    %d stalls, %d restarts, %d of them rolled back and %d empty, %d clock jumps, %d script flushes, %d times read-only, %d full
network:   %d resets, %d holes, %d links held up, %d partitions, %d slow spells, %d replies lost, %d copies of requests, %d requests after a close
tasks:     %d enqueued, %d finished, %d canceled, %d replaced by a put; %d starts, %d of them again; %d put back; %d workers failed; %d occurrences; %d told who waited
slowest:   %v until woken, %v after its time, %v until canceled, %v until recovered
violations: %d`,
		r.Runs, r.Simulated.Hours(), r.Requests,
		r.Kills, r.Pauses, r.Zombies, r.Stops, r.ByHand,
		r.Stalls, r.Restarts, r.Rollbacks, r.Wipes, r.Jumps, r.Flushes, r.Readonly, r.figures.Full,
		r.Resets, r.Holes, r.Held, r.Partitions, r.Slow, r.Deaf, r.Copies, r.Late,
		r.Enqueued, r.Finished, r.Canceled, r.Replaced, r.Starts, r.Extra, r.Returned, r.Evicted, r.Occurred, r.Told,
		r.Wake.Round(time.Millisecond), r.Due.Round(time.Millisecond), r.figures.Cancel.Round(time.Millisecond), r.Recover.Round(time.Millisecond),
		len(r.Wrong))
}
