package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// Observers get the length and the digest of a large payload or result: Redis would take too long
// to encode it.
func TestLarge(t *testing.T) {
	long := strings.Repeat("x", Large+1)
	about := "65537:" + digest(long)
	result := Outcome{Plain: true, Result: []byte(long)}
	omitted := result
	omitted.Limit(Large)
	most, some, short := strings.Repeat("m", 50_000), strings.Repeat("s", 50_000), strings.Repeat("r", 1024)
	many := member.with("rounds", "{w1=1}", "token", "=6", "working:w1", "(p1=1 p2=2 p3=3 p4=4 p5=5 p6=6)", "process:p1", "["+most+"]", "process:p2", "["+most+"]",
		"process:p3", "["+most+"]", "process:p4", "["+most+"]", "process:p5", "["+most+"]", "process:p6", "[b]")
	all := Round{Worker: "w1", Number: 2}
	for i := range 6 {
		o := Outcome{Process: fmt.Sprintf("p%d", i+1), Token: int64(i + 1), Verb: Finish, Plain: true}
		switch i {
		case 3, 4:
			o.Result = []byte(some)
		case 5:
			o.Result = []byte(short)
		}
		all.Outcomes = append(all.Outcomes, &o)
	}
	run(t, []scenario{
		{name: "finish", seed: rawP.with("process:p1", "["+long+"]"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{Plain: true}), want: "settled=ok", state: doneX, heard: []string{"done w1 " + about}}}},
		{name: "of a key", seed: runX.with("process:p1", "["+long+"]"), steps: []when{
			{call: ends(2, "p1", 1, Finish, Outcome{}), want: "settled=ok", state: doneX, heard: []string{"done w1 " + about}}}},
		{name: "a result", seed: rawP, steps: []when{
			{call: ends(2, "p1", 1, Finish, result), want: "settled=ok", state: doneX, heard: []string{"done w1 a " + about}}}},
		{name: "a result that was too large to be sent", seed: rawP, steps: []when{
			{call: ends(2, "p1", 1, Finish, omitted), want: "settled=ok", state: doneX, heard: []string{"done w1 a " + about}}}},
		{name: "more than one step encodes", seed: many, steps: []when{
			{call: steps(all), want: "settled=ok,ok,ok,ok,ok,ok", state: member.with("rounds", "{w1=2}", "token", "=6"), heard: []string{
				"done w1 " + most + " " + strconv.Quote(some), "done w1 " + most + " " + strconv.Quote(some),
				"done w1 1: 1024:", "done w1 50000:", "done w1 50000:", "done w1 50000:"}}}},
	})
}
