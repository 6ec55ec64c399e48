package redistest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// ACLEnv names the environment variable that, set to 0, makes peers connect as the default user,
// which may do everything. Otherwise they connect as the worker of docs/security.md, so the tests
// also show whether its rule suffices.
const ACLEnv = "WORQR_TEST_ACL"

func restricted() bool { return os.Getenv(ACLEnv) != "0" }

// rules is the document that contains the rule of each role. The tests apply its rules.
const rules = "docs/security.md"

// Rule returns the rule of a role, for a prefix: the arguments of ACL SETUSER after the name.
func Rule(t testing.TB, role, prefix string) []string {
	t.Helper()
	text := Sure(readRules())(t)
	return Sure(parseRule(text, role, prefix))(t)
}

// readRules reads the document, which is in a parent directory of the package under test.
var readRules = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, rules))
		if err == nil {
			return string(text), nil
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return "", errors.Join(errors.New("no "+rules+" above this directory"), err)
})

var (
	word       = regexp.MustCompile(`'[^']*'|\S+`)
	globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`)
)

// parseRule finds "redis-cli ACL SETUSER <role> …", which continues while lines end in a backslash.
func parseRule(text, role, prefix string) ([]string, error) {
	_, rest, ok := strings.Cut(text, "\nredis-cli ACL SETUSER "+role+" ")
	if !ok {
		return nil, fmt.Errorf("%s has no rule of the %s", rules, role)
	}
	rest = strings.ReplaceAll(rest, "\\\n", " ")
	line, _, _ := strings.Cut(rest, "\n")
	var rule []string
	for _, w := range word.FindAllString(line, -1) {
		w = strings.Trim(w, "'")
		for _, before := range []string{"~", "&"} {
			w = strings.ReplaceAll(w, before+"worqr", before+globEscape.Replace(prefix))
		}
		rule = append(rule, w)
	}
	return rule, nil
}

// workers are the users that Worker has created on the shared server.
var workers struct {
	sync.Mutex
	names []string
}

// Worker returns the URL with which a peer with that prefix connects: as a user with the
// permissions of the worker in docs/security.md. At the end, none of these users may have been
// denied anything. URLs that name a user or use TLS, and those of servers that don't run or need a
// password, are returned unchanged.
func Worker(t testing.TB, rawURL, prefix string) string {
	t.Helper()
	return serving(t, rawURL, "worker", workerName+prefix, prefix)
}

// Doctor is Worker for a peer that checks and repairs.
func Doctor(t testing.TB, rawURL, prefix string) string {
	t.Helper()
	return serving(t, rawURL, "doctor", workerName+"doctor-"+prefix, prefix)
}

func serving(t testing.TB, rawURL, role, name, prefix string) string {
	t.Helper()
	if rawURL == shared.url && shared.dial != nil {
		return servingEngine(t, role, name, prefix)
	}
	u, err := url.Parse(rawURL)
	if err != nil || u.User != nil || u.Scheme == "rediss" || !restricted() {
		return rawURL
	}
	c, err := redis.DialURL(rawURL, redis.DialConnectTimeout(2*time.Second))
	if err != nil {
		return rawURL
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Do("PING"); err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
		return rawURL
	}
	as := Sure(user(t, c, rawURL, name, Rule(t, role, prefix)))(t)
	if rawURL == shared.url {
		workers.Lock()
		workers.names = append(workers.names, name)
		workers.Unlock()
	} else {
		_, _ = c.Do("ACL", "SAVE") // for a restart; a server without a file refuses
	}
	return as
}

// servingEngine creates the user on all servers of a shared engine with several.
func servingEngine(t testing.TB, role, name, prefix string) (as string) {
	t.Helper()
	if !restricted() {
		return shared.url
	}
	rule := Rule(t, role, prefix)
	if shared.name == "cluster" {
		rule = append(rule, ClusterRule(t, role)...)
	}
	for _, server := range shared.servers {
		c := Sure(redis.Dial("unix", server.Socket()))(t)
		as = Sure(user(t, c, shared.url, name, rule))(t)
		_ = c.Close() // not needed anymore
	}
	return as
}

var inCluster = regexp.MustCompile("\nIn a cluster, add `([^`]+)`")

// ClusterRule returns what the document adds to the rule of a role in a cluster. A doctor also has
// the worker's additions.
func ClusterRule(t testing.TB, role string) (added []string) {
	t.Helper()
	if role == "doctor" {
		added = ClusterRule(t, "worker")
	}
	text := Sure(readRules())(t)
	_, section, _ := strings.Cut(text, "\n### "+strings.ToUpper(role[:1])+role[1:]+"\n")
	section, _, _ = strings.Cut(section, "\n### ")
	found := inCluster.FindStringSubmatch(section)
	if found == nil {
		t.Fatalf("%s doesn't say what to add for the %s in a cluster", rules, role)
		return nil
	}
	return append(added, strings.Fields(strings.ReplaceAll(found[1], "'", ""))...) // quoted for a shell
}

const workerName = "worker-"

// As returns the URL of a new user in a role, on a server that the default user may administer.
func As(t testing.TB, rawURL, role, prefix string) string {
	t.Helper()
	return Sure(user(t, Dial(t, rawURL), rawURL, fmt.Sprintf("as-%s-%08x", role, rand.Uint32()), Rule(t, role, prefix)))(t)
}

// user creates a user with that name and rule, and returns the URL with which it connects.
func user(t testing.TB, c redis.Conn, rawURL, name string, rule []string) (string, error) {
	t.Helper()
	args := []any{"SETUSER", name}
	for _, r := range rule {
		args = append(args, r)
	}
	if _, err := c.Do("ACL", args...); err != nil {
		return "", fmt.Errorf("ACL SETUSER %s %q: %w", name, rule, err)
	}
	return withLogin(rawURL, name, "SECRET"), nil
}

// denials returns what the users created by Worker were denied.
func denials(c redis.Conn) (all []string, err error) {
	entries, err := redis.Values(c.Do("ACL", "LOG"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		pairs, err := redis.Values(e, nil)
		if err != nil {
			return nil, err
		}
		fields := map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			name, _ := redis.String(pairs[i], nil)
			fields[name], _ = redis.String(pairs[i+1], nil) // numbers don't matter
		}
		if strings.HasPrefix(fields["username"], workerName) && fields["reason"] != "auth" {
			all = append(all, fmt.Sprintf("%s may not: %s %s, at %s", fields["username"], fields["reason"], fields["object"], fields["context"]))
		}
	}
	return all, nil
}

// denied returns what the users created by Worker were denied on the shared server, and removes
// them.
func denied() string {
	if len(workers.names) == 0 {
		return ""
	}
	c, err := redis.DialURL(shared.url)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	all, err := denials(c)
	if err != nil {
		return err.Error()
	}
	for _, name := range workers.names {
		_, _ = c.Do("ACL", "DELUSER", name) // cleanup
	}
	return strings.Join(all, "\n")
}

// CheckDenials fails the test if users created by Worker were denied something on the server, if
// that still runs.
func (s *Server) CheckDenials(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := redis.DialContext(ctx, "unix", s.Socket(), redis.DialReadTimeout(10*time.Second))
	if err != nil {
		return // it was killed
	}
	defer func() { _ = c.Close() }()
	all, err := denials(c)
	if err != nil {
		return // it has a password, or kills connections
	}
	for _, d := range all {
		t.Error(d)
	}
}
