package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The versions are made up. They're committed and tagged in a clone.
const first, second = "v0.3.0", "v0.3.1"

// A shell runs programs and ends the test if one fails.
type shell struct {
	*testing.T
	dir string
	env []string
}

func (s shell) run(name string, args ...string) string {
	s.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		s.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (s shell) try(name string, args ...string) (string, error) {
	c := exec.Command(name, args...)
	c.Dir, c.Env = s.dir, append(c.Environ(), s.env...)
	out, err := c.CombinedOutput()
	return string(out), err
}

func (s shell) fails(says, name string, args ...string) {
	s.Helper()
	if out, err := s.try(name, args...); err == nil || !strings.Contains(out, says) {
		s.Errorf("%s %s: %v\n%s\nwant an error with %q", name, strings.Join(args, " "), err, out, says)
	}
}

func (s shell) prints(says, name string, args ...string) {
	s.Helper()
	if out := s.run(name, args...); !strings.Contains(out, says) {
		s.Errorf("%s %s prints %q, not %q", name, strings.Join(args, " "), out, says)
	}
}

// edit changes a file of the folder.
func (s shell) edit(name string, change func(string) string) {
	s.Helper()
	name = filepath.Join(s.dir, name)
	text, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(change(string(text))), 0o644); err != nil {
		s.Fatal(err)
	}
}

func is(text string) func(string) string { return func(string) string { return text } }

// section starts a section of the changelog.
func section(number string) func(string) string {
	return func(log string) string {
		log = strings.Replace(log, "## "+number, "## 0.0.1", 1) // if there is one
		return strings.Replace(log, "\n## ", "\n## "+number+" - unreleased\n\n- A change.\n\n## ", 1)
	}
}

var (
	internal = regexp.MustCompile(`"github\.com/worqr/worqr/internal/(\w+)`)
)

// release commits a version in the clone, and adds it to the proxy.
func (s shell) release(tool, proxy, version string) {
	s.Helper()
	s.edit("CHANGELOG.md", section(version[1:]))
	s.prints("for tag in "+version+" worqrtest/"+version+" contrib/otel/"+version+" contrib/outbox/"+version, tool, "prepare", version)
	s.run("git", "commit", "-qam", version)
	s.run("git", "tag", version)
	s.run(tool, "proxy", proxy)
}

// Two versions are released from HEAD, not from the work tree, into a proxy. From there, a module that knows nothing of
// this clone builds and tests programs with all modules, also with several versions of them.
func TestRelease(t *testing.T) {
	tool, proxy := filepath.Join(t.TempDir(), "release"), t.TempDir()
	shell{T: t}.run("go", "build", "-o", tool, ".")
	s := shell{T: t, dir: t.TempDir(), env: []string{
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@localhost", "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@localhost",
	}}
	s.run("git", "clone", "-q", "--no-tags", filepath.Dir(filepath.Dir(must(os.Getwd()))), ".")
	s.prints("no version has been tagged yet", tool, "api")
	s.fails("isn't a version", tool, "prepare", "0.3.0")
	s.fails("has no section", tool, "prepare", "v9.9.9")
	s.edit("worqrtest/made_up.go", is("package worqrtest\n\n// MadeUp is gone in the third version.\nfunc MadeUp() {}\n"))
	s.run("git", "add", "worqrtest/made_up.go")
	s.release(tool, proxy, first)
	s.fails("exists", tool, "prepare", first)

	// In the next version, all internal packages have other names.
	for name := range strings.FieldsSeq(s.run("git", "ls-files", "*.go")) {
		s.edit(name, func(code string) string {
			return internal.ReplaceAllString(code, `"github.com/worqr/worqr/internal/${1}x`)
		})
	}
	for _, d := range must(os.ReadDir(filepath.Join(s.dir, "internal"))) {
		s.run("git", "mv", filepath.Join("internal", d.Name()), filepath.Join("internal", d.Name()+"x"))
	}
	s.release(tool, proxy, second)

	t.Run("API", func(t *testing.T) {
		s := s
		s.T = t
		s.run("git", "rm", "-q", "worqrtest/made_up.go")
		s.edit("CHANGELOG.md", section("0.3.2"))
		s.fails("MadeUp: removed", tool, "api", "worqrtest") // one, which is quick
	})

	cache := must(exec.Command("go", "env", "GOMODCACHE").Output())
	others := must(exec.Command("go", "env", "GOPROXY").Output())
	s.env = []string{
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath -vet=off -ldflags=-w", "GONOSUMDB=" + library, "GOMODCACHE=" + t.TempDir(), "GOBIN=" + t.TempDir(), // with -trimpath, other folders compile alike
		"GOPROXY=file://" + proxy + ",file://" + strings.TrimSpace(string(cache)) + "/cache/download," + strings.TrimSpace(string(others)),
	}
	s.dir = t.TempDir()
	s.run("go", "install", library+"/"+command+"@"+first)
	s.prints("worqr "+first+"\n", filepath.Join(strings.TrimPrefix(s.env[4], "GOBIN="), "worqr"), "version")

	s.edit("go.mod", is("module example.com/service\n\ngo 1.26\n"))
	s.edit("library/main.go", is(program))
	s.edit("worqrtest/a_test.go", is(testing_))
	s.edit("otel/a_test.go", is(otel))
	s.edit("outbox/a_test.go", is(outbox))
	s.edit("prometheus/a_test.go", is(prometheus))
	nested := published[1:5]
	get := func(version string, modules ...string) {
		args := []string{"get"}
		for _, m := range modules {
			args = append(args, filepath.Join(library, m)+"@"+version)
		}
		s.run("go", args...)
	}
	builds := func(of string, versions ...string) {
		t.Helper()
		for i, sub := range published[:5] {
			if got := s.run("go", "list", "-m", "-f", "{{.Version}}", filepath.Join(library, sub)); got != versions[i]+"\n" {
				t.Errorf("%s: %s is %s, not %s", of, sub, got, versions[i])
			}
		}
		s.prints("version "+versions[0][1:], "go", "run", "./library")
		t.Log(of, s.run("go", "test", "./worqrtest", "./otel", "./outbox", "./prometheus"))
	}
	get(first, published[:5]...)
	s.run("go", "mod", "tidy")
	builds("all from the first version", first, first, first, first, first)
	get(second, "")
	builds("a newer library", second, first, first, first, first)
	for _, m := range nested {
		get(first, published[:5]...)
		get(second, m)
		want := []string{second, first, first, first, first} // it requires its own version of the library
		want[slices.Index(published, m)] = second
		builds("a newer "+m, want...)
	}
}

// A patch breaks nobody, and from 1.0 on, neither does a minor version.
func TestAllow(t *testing.T) {
	for next, fails := range map[string]bool{"v0.3.2": true, "v0.4.0": false, "v1.0.0": false} {
		if err := allow("v0.3.1", next, []string{library}); (err != nil) != fails {
			t.Error(next, err)
		}
	}
	if allow("v1.0.0", "v1.1.0", []string{library}) == nil || allow("v0.3.1", "v0.3.2", nil) != nil {
		t.Error("the other way round")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What users write.
const (
	program = `package main

import (
	"fmt"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/dash"
)

func main() { fmt.Println("version", worqr.Version, dash.New(new(worqr.Peer), nil) != nil) }
`
	testing_ = `package worqrtest

import (
	"context"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/worqrtest"
)

func Test(t *testing.T) {
	peer := worqrtest.Start(t).Peer(nil)
	q := peer.Queue("q")
	q.Handle(func(context.Context, *worqr.Task) error { return nil }, nil)
	stop := peer.Serve()
	peer.LoseReply("hello")
	if err := q.Enqueue(t.Context(), []byte("hello")); err == nil {
		t.Error("no reply was lost")
	}
	worqrtest.WaitIdle(t, q)
	stop()
	if n := peer.Stats().Finished; n != 1 {
		t.Errorf("%d tasks finished", n)
	}
}
`
	otel = `package otel

import (
	"testing"

	"github.com/worqr/worqr"
	worqrotel "github.com/worqr/worqr/contrib/otel"
	"github.com/worqr/worqr/worqrtest"
)

func Test(t *testing.T) {
	telemetry := worqrotel.New(nil)
	peer := worqrtest.Start(t).Peer(&worqr.Options{Trace: telemetry.Trace()})
	if _, err := telemetry.Add(t.Context(), peer.Queue("q"), worqr.TaskSpec{Payload: []byte("hello")}); err != nil {
		t.Error(err)
	}
}
`
	outbox = `package outbox

import (
	"database/sql"
	"testing"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/contrib/outbox"
	"github.com/worqr/worqr/worqrtest"
)

func Test(t *testing.T) {
	ob := outbox.New(new(sql.DB), outbox.Postgres, nil)
	if err := ob.Handle(worqrtest.Start(t).Peer(nil).Peer); err != nil {
		t.Error(err)
	}
	if _, err := ob.Add(t.Context(), new(sql.Tx), "a b", worqr.TaskSpec{}); err == nil {
		t.Error("a bad name was accepted")
	}
}
`
	prometheus = `package prometheus

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/worqr/worqr"
	worqrprom "github.com/worqr/worqr/contrib/prometheus"
	"github.com/worqr/worqr/worqrtest"
)

func Test(t *testing.T) {
	metrics := worqrprom.New(nil)
	peer := worqrtest.Start(t).Peer(&worqr.Options{Trace: metrics.Trace()})
	metrics.Watch(peer.Peer)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	if err := peer.Queue("q").Enqueue(t.Context(), []byte("hello")); err != nil {
		t.Error(err)
	}
	if families, err := registry.Gather(); err != nil || len(families) == 0 {
		t.Error(families, err)
	}
}
`
)
