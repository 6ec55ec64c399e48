package invariants

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/worqr/worqr/integration/spec"
	"github.com/worqr/worqr/integration/spec/lane"
	"github.com/worqr/worqr/internal/keys"
)

// well is a queue in which one worker runs a task of the list, and one under a key, for which another
// task waits; a cancel covers the first.
var well = []string{
	"ZADD workers 1000 w1", "LPUSH process:p1 a", "LPUSH process:p2 b", "ZADD working:w1 1 p1 2 p2", "SET token 3", "ZADD holders 0 w1",
	"HSET keyed:k:x process p2 payload c due 5", "HSET entries p2 k:x", "ZADD contents 0 <c>:k:x",
	"HSET keyed:k:y payload d due 5", "ZADD schedule 5 k:y", "ZADD contents 0 <d>:k:y", "LPUSH queues e",
	"XADD added 5-7 0123456789abc0 f", "XADD added 5-8 0123456789abc2 !", "HSET keyed:<large> payload g card 0",
	"LPUSH process:p4 h", "ZADD working:w1 0 p4", "HSET entries p4 a:5-6-0123456789abc0 a:5-6-0123456789abc p4:w1",
	"HSET keyed:k:z payload i due 6 digest <k:z>", "ZADD schedule 6 k:z", "ZADD contents 0 <k:z>:k:z",
	"ZADD canceled 3 <a>", "ZADD stopping 0 p<a>:0000000000000001:p1",
}

// The entries of added tasks: of one that waits, of one whose payload is stored apart, and of one that runs.
var entriesOf = func() map[string]string {
	all := map[string]string{"<k:z>": lane.Digest("k:z")}
	for name, id := range map[string]string{"<small>": "5-7", "<large>": "5-8", "<runs>": "5-6"} {
		key, ok := keys.AddedKey(id, "0123456789abc")
		if !ok {
			panic(id)
		}
		all[name] = "k:" + key
	}
	return all
}()

// view returns the queue after some commands, which name keys by their kind.
func view(commands ...string) *lane.Lane {
	s := spec.NewMemory()
	defer s.Close()
	for _, c := range commands {
		for _, p := range []string{"a", "b", "c", "d", "e"} {
			c = strings.ReplaceAll(c, "<"+p+">", lane.Digest(p))
		}
		for name, is := range entriesOf {
			c = strings.ReplaceAll(c, name, is)
		}
		words := strings.Fields(c)
		kind, of, part := strings.Cut(words[1], ":")
		if words[1] = "t:" + kind + ":{q}"; part {
			words[1] += ":" + of
		}
		if refused, ok := s.Do(words...).(spec.Refusal); ok {
			panic(c + ": " + string(refused))
		}
	}
	return lane.View(s, "t:", "q", false)
}

func TestRules(t *testing.T) {
	for _, c := range []struct{ change, wrong string }{
		{"", ""},
		{"DEL workers", "worker w1 holds 3 processes of q, but isn't a member"},
		{"DEL process:p1", "worker w1 holds process p1 of q, which has no list"},
		{"LPUSH process:p9 z", "q has 4 processes, but workers hold 3"},
		{"ZADD working:w2 4 p2", "q has 3 processes, but workers hold 4"},
		{"HSET entries p1 k:x", "run the same entry k:x"},
		{"HSET entries p9 k:y", "process p9 of q runs the entry k:y, but has no list"},
		{"HSET keyed:k:x process p1", "entry k:x of q names the process p1, which doesn't run it"},
		{"ZREM schedule k:y", "in schedule: false, waiting: true, running: false"},
		{"ZADD schedule 5 k:x", "in schedule: true, waiting: true, running: true"},
		{"HSET keyed:k:x payload z", "entry k:x of q waits with the payload z, but isn't in contents"},
		{"ZADD contents 0 <e>:k:z", "3 waiting entries, but 4 in contents"},
		{"HDEL entries a:5-6-0123456789abc", `held by w1, runs the added task a:5-6-0123456789abc, which names ""`},
		{"HSET entries a:5-6-0123456789abc p4:w2", "which names \"p4:w2\""},
		{"HSET entries a:5-9-0123456789abc p4:w1", "added task a:5-9-0123456789abc of q names the process p4, which runs \"a:5-6"},
		{"HSET entries p4 <small>", "waits in the stream, but process p4 runs it"},
		{"HSET keyed:<large> due 5", "its hash doesn't have just the payload"},
		{"HDEL keyed:<large> payload", "its hash doesn't have just the payload"},
		{"HSET keyed:<small> payload z", "waits in the stream, but also has a hash"},
		{"HDEL keyed:k:z digest", "entry k:z of q waits with the payload i, but isn't in contents"},
		{"DEL holders", "worker w1 holds processes of q, but isn't in holders"},
		{"ZADD holders 0 w2", "worker w2 is in holders of q, but holds nothing"},
		{"ZADD stopping 0 p<b>:0000000000000001:p1", "stopping of q has p"},
		{"DEL canceled", "the cancel of a of q has ended, but process p1 still runs"},
		{"SET token 2", "the token of q falls from 3 to 2"},
		{"LPUSH process:p3 z ; ZADD working:w1 3 p3", "z of q starts with token 3, but 3 was issued before"},
	} {
		t.Run(c.change, func(t *testing.T) {
			was, commands := view(well...), slices.Clone(well)
			if c.change != "" {
				commands = append(commands, strings.Split(c.change, " ; ")...)
			}
			is := view(commands...)
			var wrong []string
			note := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
			began, _ := is.Since(was)
			State(is, nil, note)
			Tokens(was, is, began, note)
			Canceled(was, is, func(string) bool { return false }, note)
			found := slices.ContainsFunc(wrong, func(w string) bool { return strings.Contains(w, c.wrong) })
			if c.wrong == "" && len(wrong) > 0 || c.wrong != "" && !found {
				t.Errorf("%q, want %q", wrong, c.wrong)
			}
		})
	}
}

// docs/protocol.md has the same invariants, in the same order, and says what keeps them.
func TestProtocolHasThem(t *testing.T) {
	text, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\n## Invariants\n")
	for i, v := range All {
		head := fmt.Sprintf("\n%d. **%s.**", i+1, strings.ToUpper(v.Name[:1])+v.Name[1:])
		if !strings.Contains(list, head) {
			t.Errorf("there is no %q", head)
		}
	}
}
