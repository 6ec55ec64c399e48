package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// mutation is the directory with which integration/mutation controls these tests. It contains
//
//	*.lua    replacements of the files of this package
//	tests    the names of the tests to run, one per line; without it all run
//	reached  a directory, if each test should record what it has reached
var mutation = os.Getenv("WORQR_MUTATION")

// current returns the source of a verb, which a mutation may have changed.
var current = source

// mutate makes the tests run on the scripts of the mutation.
func mutate() error {
	if mutation == "" {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(mutation, "*.lua"))
	var pairs []string
	for _, path := range paths {
		was, missing := files.ReadFile(filepath.Base(path))
		is, unread := os.ReadFile(path)
		if missing != nil || unread != nil {
			return fmt.Errorf("%v %v", missing, unread)
		}
		pairs = append(pairs, unmarked(was), unmarked(is))
	}
	changed := strings.NewReplacer(pairs...)
	current = func(verb string) string { return changed.Replace(source(verb)) }
	same := true
	for _, v := range Verbs() {
		v.script = redisconn.NewScript(func() string { return current(v.Name) })
		same = same && current(v.Name) == source(v.Name)
	}
	if same && len(pairs) > 0 {
		return errors.New("the mutation changes no script")
	}
	return err
}

// unmarked returns a file as it appears in the scripts.
func unmarked(text []byte) string { return string(marks.ReplaceAll(text, nil)) }

// rewrite replaces all scripts until the test ends. The test must not run beside others.
func rewrite(t testing.TB, as func(source string) string) {
	for _, v := range Verbs() {
		was := v.script
		v.script = redisconn.NewScript(func() string { return as(current(v.Name)) })
		t.Cleanup(func() { v.script = was })
	}
}

// asked returns the tests that the mutation asks for; nil means all.
var asked = sync.OnceValue(func() map[string]bool {
	list, err := os.ReadFile(filepath.Join(mutation, "tests"))
	if mutation == "" || err != nil {
		return nil
	}
	all := map[string]bool{}
	for name := range strings.Lines(string(list)) {
		all[strings.TrimSuffix(name, "\n")] = true
	}
	return all
})

// chosen skips a test that the mutation doesn't ask for, and ends the whole run when one fails, since
// the mutation is caught then.
func chosen(t testing.TB) {
	if asked() == nil {
		return
	}
	if !asked()[t.Name()] {
		t.Skip("not asked for")
	}
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Println("FAILED", t.Name())
			os.Exit(1)
		}
	})
}

// reports is the ACL rule that lets scripts report what they have reached, for a user who may publish
// nothing else.
const reports = "&reached:*"

// watched records which places in the scripts a test reached, and how long it took. The scripts report
// them on a channel named after the prefix of their keys. It subscribes without a pattern, since
// scripts check whether there are subscribers to patterns.
func watched(t testing.TB, url, prefix string) {
	dir := filepath.Join(mutation, "reached")
	if _, err := os.Stat(dir); mutation == "" || err != nil {
		return
	}
	c, ear := redistest.Dial(t, url), redis.PubSubConn{Conn: redistest.Dial(t, url)}
	if err := ear.Subscribe("reached:" + prefix); err != nil {
		t.Fatal(err)
	}
	ear.Receive()
	begin := time.Now()
	t.Cleanup(func() {
		said := []string{t.Name(), time.Since(begin).String()}
		if _, err := c.Do("PUBLISH", "reached:"+prefix, "end"); err != nil {
			t.Error(err)
			return
		}
		seen := map[string]bool{}
		for {
			m, ok := ear.ReceiveWithTimeout(time.Minute).(redis.Message)
			if !ok || string(m.Data) == "end" {
				break
			}
			if place := string(m.Data); !seen[place] {
				seen[place] = true
				said = append(said, place)
			}
		}
		f, err := os.CreateTemp(dir, "")
		if err == nil {
			_, err = f.WriteString(strings.Join(said, "\n"))
			_ = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	})
}
