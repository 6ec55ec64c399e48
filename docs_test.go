package worqr_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redistest"
)

// documents are the texts that these tests check against the code.
var documents = slices.Concat([]string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}, matchingAny("docs/*.md", "deploy/*/README.md", "deploy/runbooks/*.md", "contrib/*/README.md"))

// fenced returns the code blocks in a language.
func fenced(text, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// flush returns text without its indentation.
func flush(text string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(text, "")
}

// The Go code in the documents compiles and runs: the first block of the README is a complete
// example, and the others are lines of an example or a recipe.
func TestReadmeCode(t *testing.T) {
	is := parallel(t)
	blocks := fenced(contents(t, "README.md"), "go")
	is.True(len(blocks) >= 2)
	if lines, words := strings.Count(contents(t, "README.md"), "\n"), len(strings.Fields(contents(t, "README.md"))); lines > 160 || words > 1500 {
		t.Errorf("the README has %d lines and %d words; 160 and 1,500 at most", lines, words)
	}
	is.Equal(blocks[0], contents(t, "examples/minimal/main.go"))
	if n := len(regexp.MustCompile(`(?m)^\s*\S`).FindAllString(blocks[0], -1)); n > 30 {
		t.Errorf("the first program has %d lines of code; 30 at most", n)
	}
	sources := flush(contents(t, append(matching(t, "examples/*/main.go"), "example_test.go", "integration/api/recipes_test.go", "integration/api/patterns_test.go", "examples/demo/recipe_test.go", "worqrtest/example_test.go", "contrib/otel/example_test.go", "contrib/prometheus/example_test.go", "contrib/outbox/example_test.go", "integration/outbox/example_test.go")...))
	for _, doc := range documents {
		for _, block := range fenced(contents(t, doc), "go") {
			if !strings.Contains(sources, flush(block)) {
				t.Errorf("%s: no example has these lines:\n%s", doc, block)
			}
		}
		for _, block := range fenced(contents(t, doc), "python") {
			if !strings.Contains(contents(t, "examples/polyglot/produce.py"), block) {
				t.Errorf("%s: examples/polyglot/produce.py doesn't have these lines:\n%s", doc, block)
			}
		}
	}
}

// anchors returns the anchors that GitHub gives to the headings of a text.
func anchors(text string) (all []string) {
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// Links in the documents lead to an existing file, and to a heading in it.
func TestDocsLinks(t *testing.T) {
	t.Parallel()
	headings := map[string][]string{}
	for _, doc := range documents {
		for _, m := range regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]+))?\)`).FindAllStringSubmatch(contents(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := doc
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(doc), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", doc, err)
				continue
			}
			if m[2] != "" && headings[target] == nil {
				headings[target] = anchors(contents(t, target))
			}
			if m[2] != "" && !slices.Contains(headings[target], m[2]) {
				t.Errorf("%s: %s has no heading %s", doc, target, m[2])
			}
		}
	}
}

// Tests and channels that the documents name exist, and so do
// rows on all keys and channels.
func TestDocsNames(t *testing.T) {
	t.Parallel()
	protocol := contents(t, "docs/protocol.md")
	tests := map[string]string{} // by directory; "" for the root
	for _, file := range slices.Concat(matching(t, "*_test.go"), matching(t, "internal/*/*_test.go"), matching(t, "integration/*_test.go"), matching(t, "integration/*/*_test.go"), matching(t, "cmd/worqr/*_test.go"), matching(t, "dash/*_test.go"), matching(t, "bench/*_test.go")) {
		tests[strings.TrimPrefix(filepath.Dir(file), ".")] += contents(t, file)
	}
	for _, doc := range documents {
		for _, name := range regexp.MustCompile("`(?:([\\w/]+)\\.)?((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(contents(t, doc), -1) {
			if !strings.Contains(tests[name[1]], "\nfunc "+name[2]+"(") {
				t.Errorf("%s names %s, which is not there", doc, strings.Trim(name[0], "`"))
			}
		}
	}
	for _, key := range keys.Table {
		if !regexp.MustCompile("\n\\| `worqr:" + key.Kind + "\\b").MatchString(protocol) {
			t.Errorf("docs/protocol.md has no row on the key %s", key.Kind)
		}
	}
	channels := regexp.MustCompile(`Kind\w+\s+Kind = "(\w+)"`).FindAllStringSubmatch(contents(t, "internal/keys/keys.go"), -1)
	if len(channels) < 5 {
		t.Fatalf("%d channels found", len(channels))
	}
	for _, channel := range channels {
		if !strings.Contains(protocol, "\n| `worqr_{q}_"+channel[1]+"` |") {
			t.Errorf("docs/protocol.md has no row on the channel of %s", channel[1])
		}
	}
}

// Every option, package, document and example is listed, and every listed file exists.
func TestDocsLists(t *testing.T) {
	t.Parallel()
	listed := contents(t, "docs/options.md")
	for _, options := range []any{worqr.HandleOptions{}, worqr.Options{}} {
		for _, field := range reflect.VisibleFields(reflect.TypeOf(options)) {
			if !strings.Contains(listed, "\n| `"+field.Name+"` |") {
				t.Errorf("docs/options.md has no row on the option %s", field.Name)
			}
		}
	}
	architecture := contents(t, "docs/architecture.md")
	for _, dir := range matching(t, "internal/*") {
		if !strings.Contains(architecture, "`"+dir+"`") {
			t.Errorf("docs/architecture.md does not say what %s is for", dir)
		}
	}
	readme := contents(t, "README.md")
	for _, doc := range documents {
		if doc != "README.md" && !strings.HasPrefix(doc, "deploy/runbooks/") && !strings.Contains(readme, "]("+doc) {
			t.Errorf("README.md has no link to %s", doc)
		}
	}
	_, list, _ := strings.Cut(readme, "[examples](examples):")
	for _, file := range matching(t, "examples/*/main.go") {
		if name := filepath.Base(filepath.Dir(file)); !regexp.MustCompile(`\b` + name + `\b`).MatchString(list) {
			t.Errorf("README.md does not list the example %s", name)
		}
	}
	for _, doc := range documents {
		for _, m := range regexp.MustCompile("`(\\w+\\.go|internal/[\\w/]+(?:\\.(?:go|lua))?)`").FindAllStringSubmatch(contents(t, doc), -1) {
			if _, err := os.Stat(m[1]); err != nil && len(matchingAny("internal/*/"+m[1], "integration/*/"+m[1])) == 0 {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
}

// docs/oncall.md lists each warning and error that a peer logs.
func TestDocsLogLines(t *testing.T) {
	t.Parallel()
	listed, n := contents(t, "docs/oncall.md"), 0
	lines := regexp.MustCompile(`(?:(?:Warn|Error|warnPolicy)\(|What: *)"worqr: ([^"\n]+)"|(?:\.Note\([^"\n]*|says[A-Z]\w* += |w\.repeat\([^"\n]*)"([^"\n]* [^"\n]*)"`)
	for _, f := range slices.Concat(matching(t, "*.go"), matching(t, "internal/*/*.go")) {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range lines.FindAllStringSubmatch(contents(t, f), -1) {
			if n++; !strings.Contains(listed, "`"+m[1]+m[2]+"`") {
				t.Errorf("docs/oncall.md does not explain %q of %s", m[1]+m[2], f)
			}
		}
	}
	if n < 30 {
		t.Errorf("these are not all: %d", n)
	}
}

// docs/findings.md has one row for each kind of finding.
func TestDocsFindings(t *testing.T) {
	is := parallel(t)
	var listed []inspect.FindingKind
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)`(?: \\*)? \\| [a-z, ]+ \\|").FindAllStringSubmatch(contents(t, "docs/findings.md"), -1) {
		listed = append(listed, inspect.FindingKind(m[1]))
	}
	slices.Sort(listed)
	is.Equal(listed, slices.Sorted(slices.Values(worqr.FindingKinds())))
	for _, m := range regexp.MustCompile(`Kind\s+= "([a-z-]+)"`).FindAllStringSubmatch(contents(t, "internal/doctor/diagnosis.go"), -1) {
		is.True(slices.Contains(listed, inspect.FindingKind(m[1])))
	}
}

// The documented commands for producers in other languages reach a handler.
func TestDocsProducer(t *testing.T) {
	t.Parallel()
	for doc, example := range map[string]struct{ queue, payload string }{
		"README.md":        {"mails", `{"To":"bob@example.com","Subject":"Hi"}`}, // for the handler of its program
		"docs/recipes.md":  {"emails", "hello"},
		"docs/protocol.md": {"emails", "hello"},
	} {
		t.Run(doc, func(t *testing.T) {
			is := parallel(t)
			server := redistest.Start(t)                                                // uses the commands' default prefix
			peer := sure(worqr.Open(server.URL(), &worqr.Options{Lease: time.Hour}))(t) // so that no heartbeat helps
			defer peer.Close()
			q := peer.Queue(example.queue)
			got := make(chan string, 10)
			q.Handle(tell(got), nil)
			end, ran := start(t, peer)
			conn := redistest.Dial(t, server.URL())
			eventually(t, "it is idle and listens", func() bool {
				s := sure(q.Stats(t.Context()))(t)
				channel := "worqr_{" + example.queue + "}_work"
				heard := sure(redis.IntMap(conn.Do("PUBSUB", "NUMSUB", channel)))(t)
				return s.IdleWorkers == 1 && heard[channel] == 1
			})
			for _, m := range regexp.MustCompile(`(?m)^(?:redis-cli )?((?:LPUSH|PUBLISH) .*)$`).FindAllStringSubmatch(contents(t, doc), -1) {
				words := strings.Fields(m[1])
				var args []any
				for _, w := range words[1:] {
					args = append(args, strings.Trim(w, "'")) // quoted for a shell
				}
				is.Equal(sure(conn.Do(words[0], args...))(t), int64(1)) // pushed, or received by one
			}
			is.Equal(receive(t, got, 1), []string{example.payload})
			end()
			is.NoErr(<-ran)
		})
	}
}

// Every example does what it says, each on its own Redis.
func TestDocsExamples(t *testing.T) {
	is := parallel(t)
	want := map[string]string{
		"minimal": `sending to ann@example.com`, // then it serves until it's killed
		"cancel":  "the handler's context has ended: worqr: the task was canceled\nremoved: 0\n",
		"verbs":   "stop cat\nfinish cat\nfinish dog\nwait: 0\n",
		"events":  "tasks enqueued: 1\na hat: shipped\n",
		"retry": "attempt 1\nattempt 2\nattempt 3\nfailed after 2 retries: to bob, no such mailbox\n" +
			"the mailbox is there now\nattempt 1\n",
		"schedule":  "clean up\nremind\nclean up\nclean up\n",
		"singleton": "begin with page 1\nend with page 1\nbegin with page 9\nend with page 9\n",
		"typed": "to bob: hello\nto eve: goodbye\n" +
			"malformed, to bob: worqr: decode the payload: not JSON, at byte 2 of 6\n",
		"doctor": "Waiting on \"scans\". No worker serves this queue; start the service that handles it.\nthe worst: stuck orphan\n" +
			"orphan on scans: 1 task was started and is held by no member of the queue, so no worker returns it. Returned to the front of the queue.\n" +
			"waiting: 1\n",
		"dashboard": "", // it serves until it is interrupted
		"commands":  "slept 0 s\nworqr: run \"sh\": the attempt took too long\n",
		"polyglot":  "to bob: hello\nto eve: good bye\n", // from its producers
	}
	bin := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin+string(filepath.Separator), "./examples/...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built := sure(os.ReadDir(bin))(t)
	is.Equal(len(built), len(want))
	for _, program := range built {
		t.Run(program.Name(), func(t *testing.T) {
			is := parallel(t)
			server := redistest.Start(t)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(bin, program.Name()))
			cmd.Env = append(os.Environ(), "REDIS_URL="+server.URL())
			if program.Name() == "dashboard" {
				dashboard(t, cmd)
				return
			}
			if program.Name() == "polyglot" {
				polyglot(t, cmd, want["polyglot"])
				return
			}
			if program.Name() == "minimal" { // a service, which logs and keeps running
				stderr := sure(cmd.StderrPipe())(t)
				is.NoErr(cmd.Start())
				for lines := bufio.NewScanner(stderr); lines.Scan(); {
					if strings.HasSuffix(lines.Text(), want["minimal"]) {
						break
					}
				}
				is.NoErr(cmd.Process.Kill())
				_ = cmd.Wait() // reports that it was killed
				return
			}
			cmd.Stderr = os.Stderr
			is.Equal(string(sure(cmd.Output())(t)), want[program.Name()])
		})
	}
}

// dashboard requests the example's pages, without and with the password, then interrupts it.
func dashboard(t *testing.T, cmd *exec.Cmd) {
	is := is.New(t)
	cmd.Env = append(cmd.Env, "DASHBOARD_PASSWORD=secret", "LISTEN=127.0.0.1:0")
	stderr := sure(cmd.StderrPipe())(t)
	is.NoErr(cmd.Start())
	at := ""
	lines := bufio.NewScanner(stderr)
	for at == "" && lines.Scan() {
		_, at, _ = strings.Cut(lines.Text(), "serving http://")
	}
	serving := make(chan bool) // otherwise the signal would end Run before it has begun
	go func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), "worqr: serving") {
				close(serving)
			}
		}
	}()
	for login, status := range map[string]int{"": http.StatusUnauthorized, "ann:wrong@": http.StatusUnauthorized, "ann:secret@": http.StatusOK} {
		resp := sure(http.Get("http://" + login + at))(t)
		is.Equal(resp.StatusCode, status)
		is.NoErr(resp.Body.Close())
	}
	<-serving
	is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
	is.NoErr(cmd.Wait())
}

// The commands that add a named task without Go do so.
func TestDocsAddInBash(t *testing.T) {
	is := is.New(t)
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("redis-cli isn't installed")
	}
	blocks := slices.DeleteFunc(fenced(contents(t, "docs/protocol.md"), ""), func(b string) bool { return !strings.HasPrefix(b, "cat lib_") })
	is.Equal(len(blocks), 1)
	server := redistest.Start(t)
	_, port, err := net.SplitHostPort(server.Addr())
	is.NoErr(err)
	script := strings.NewReplacer("redis-cli", "redis-cli -p "+port, "/tmp/add.lua", filepath.Join(t.TempDir(), "add.lua")).Replace(blocks[0])
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = "internal/store"
	said, err := cmd.CombinedOutput()
	is.NoErr(err)
	is.Equal(strings.Fields(string(said)), []string{"k:ann", "1"}) // and nobody serves the queue
}

// polyglot enqueues with the producers in other languages, if this machine can run them, and waits
// until the example has handled their tasks.
func polyglot(t *testing.T, worker *exec.Cmd, want string) {
	is := is.New(t)
	stdout := sure(worker.StdoutPipe())(t)
	is.NoErr(worker.Start())
	lines, handled := bufio.NewScanner(stdout), strings.Split(want, "\n")
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = worker.Env
		return cmd.Run()
	}
	if run("redis-cli", "--version") == nil {
		is.NoErr(run("examples/polyglot/produce.sh", `{"To": "bob", "Text": "hello"}`))
		is.True(lines.Scan())
		is.Equal(lines.Text(), handled[0])
	}
	if run("python3", "-c", "import redis") == nil {
		is.NoErr(run("examples/polyglot/produce.py", "eve", "good bye"))
		is.True(lines.Scan())
		is.Equal(lines.Text(), handled[1])
	}
	is.NoErr(worker.Process.Signal(syscall.SIGTERM))
	is.NoErr(worker.Wait())
}
