package api

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/internal/redisserver"
	"github.com/worqr/worqr/internal/redistest"
)

// password is that of all users of a deployment.
const password = "4711ABcd"

// A deployment runs one of the setups in deploy on this machine: the services of its compose.yml, with
// the same commands and files. Only the ports differ, and all host names are localhost.
type deployment struct {
	t     *testing.T
	name  string
	ports map[string]string    // port in compose.yml → port on this machine
	run   map[string]*exec.Cmd // by service
	homes map[string]string    // service → its data directory
}

var (
	serviceOf  = regexp.MustCompile(`(?m)^  ([\w-]+):\n(?:    .*\n)*?    command: (\[.*\])$`)
	nameInNet  = regexp.MustCompile(`\b(?:redis|sentinel)-\d\b|\b172\.30\.\d+\.\d+\b`)
	urlOfUser  = regexp.MustCompile("`(redis\\+\\w+://[^`]+)`")
	registries = regexp.MustCompile(`(?m)^(?:FROM|.*image:).*(?:[a-z0-9]\.(?:com|io|org|net|dev)/|localhost:\d)`)
)

// deployed returns a file in deploy.
func deployed(t *testing.T, name string) string {
	t.Helper()
	return string(sure(os.ReadFile(filepath.Join("../../deploy", name)))(t))
}

// deploy starts all services of a deployment.
func deploy(t *testing.T, name string) *deployment {
	t.Helper()
	for _, program := range []string{"redis-server", "redis-cli", "sh"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs ", program, " in PATH")
		}
	}
	d := &deployment{t: t, name: name, ports: map[string]string{}, run: map[string]*exec.Cmd{}, homes: map[string]string{}}
	services := serviceOf.FindAllStringSubmatch(deployed(t, name+"/compose.yml"), -1)
	if len(services) < 6 {
		t.Fatalf("%d services of %s found", len(services), name)
	}
	for _, m := range services {
		if m[1] != "create" {
			d.start(m[1], m[2])
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", d.words(m[2])...)
		cmd.Env = append(os.Environ(), "PASSWORD="+password)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	t.Cleanup(func() {
		for _, cmd := range d.run {
			_ = cmd.Process.Kill() // it may be dead
			_ = cmd.Wait()
		}
	})
	return d
}

// words returns the arguments of sh that run the command of a service on this machine.
func (d *deployment) words(command string) (words []string) {
	must(d.t, json.Unmarshal([]byte(command), &words))
	for i, w := range words {
		w = strings.Replace(w, "/etc/worqr", sure(filepath.Abs("../../deploy"))(d.t), 1)
		words[i] = d.here(w)
	}
	return words[1:]
}

// here replaces the ports and host names in a text with those of this machine.
func (d *deployment) here(text string) string {
	for there, here := range d.ports {
		text = regexp.MustCompile(`\b`+there+`\b`).ReplaceAllString(text, here)
	}
	return nameInNet.ReplaceAllStringFunc(text, func(name string) string {
		if strings.HasPrefix(name, "172.") {
			return "127.0.0.1"
		}
		return "localhost"
	})
}

// start runs the command of a service on a free port.
func (d *deployment) start(service, command string) {
	d.t.Helper()
	there := regexp.MustCompile(`"port (\d+)"`).FindStringSubmatch(command)[1]
	must(d.t, redisserver.OnFreePort(func(port int) error {
		d.ports[there] = fmt.Sprint(port)
		d.homes[service] = d.t.TempDir()
		bus := 10_000 + port%10_000 // the default, port + 10,000, may be out of range
		lines := append(d.words(command), "bind 127.0.0.1 -::1")
		if d.name == "cluster" {
			lines = append(lines, fmt.Sprint("cluster-port ", bus))
		}
		return d.launch(service, lines)
	}))
}

// launch starts a service and waits until it serves.
func (d *deployment) launch(service string, args []string) error {
	cmd := exec.CommandContext(context.WithoutCancel(d.t.Context()), "sh", args...) // peers leave before it ends
	cmd.Env = append(os.Environ(), "DATA="+d.homes[service], "PASSWORD="+password)
	err := redisserver.Serve(cmd)
	if err == nil {
		d.run[service] = cmd
	}
	return err
}

// url returns the URL in the README for a user, on this machine.
func (d *deployment) url(user string) string {
	d.t.Helper()
	m := urlOfUser.FindStringSubmatch(deployed(d.t, d.name+"/README.md"))
	if m == nil {
		d.t.Fatal("the README has no URL")
	}
	return d.here(strings.NewReplacer("://worker:", "://"+user+":", "SECRET", password).Replace(m[1]))
}

// do sends a command to a service, as a user with all permissions. Each call uses a new connection,
// since a service cuts its connections when it's demoted or dies.
func (d *deployment) do(service, command string, args ...any) (any, error) {
	port := ""
	for _, w := range d.run[service].Args {
		if p, ok := strings.CutPrefix(w, "port "); ok {
			port = p
		}
	}
	user := "admin"
	if strings.HasPrefix(service, "sentinel") {
		user = ""
	}
	c, err := redis.Dial("tcp", "127.0.0.1:"+port,
		redis.DialUsername(user), redis.DialPassword(password), redis.DialReadTimeout(time.Minute))
	if err != nil {
		return nil, err
	}
	defer c.Close() //nolint:errcheck // the reply is all that matters
	return c.Do(command, args...)
}

// role returns the role that a server reports.
func (d *deployment) role(service string) string {
	said, err := redis.Values(d.do(service, "ROLE"))
	if err != nil {
		return ""
	}
	return string(said[0].([]byte))
}

// master waits until one of the given servers is a master, and returns it. It ignores the server
// than.
func (d *deployment) master(than string, of ...string) (now string) {
	d.t.Helper()
	eventually(d.t, "a replica is promoted", func() bool {
		at := slices.IndexFunc(of, func(s string) bool { return s != than && d.role(s) == "master" })
		if at >= 0 {
			now = of[at]
		}
		return at >= 0
	})
	return now
}

// configured checks the settings of a server.
func (d *deployment) configured(service string, settings map[string]string) {
	d.t.Helper()
	for what, want := range settings {
		if got := sure(redis.StringMap(d.do(service, "CONFIG", "GET", what)))(d.t); got[what] != want {
			d.t.Errorf("%s of %s is %q, want %q", what, service, got[what], want)
		}
	}
}

// judge reports findings of Check, and commands that users were denied, as test failures.
func (d *deployment) judge() {
	d.t.Helper()
	doctor := openAt(d.t, d.url("doctor"), worqr.Options{Prefix: "worqr"})
	eventually(d.t, "all is well", func() bool {
		r, err := doctor.Check(d.t.Context(), nil)
		return err == nil && intact(r)
	})
	for service := range d.run {
		if strings.HasPrefix(service, "redis") {
			for _, entry := range sure(redis.Values(d.do(service, "ACL", "LOG")))(d.t) {
				d.t.Errorf("%s denied: %q", service, entry)
			}
		}
	}
}

// works starts peers that serve the queues, and returns a function that checks that a new task on
// each of them runs.
func (d *deployment) works(queues ...string) (runsNow func(what string)) {
	d.t.Helper()
	ran := map[string]*tally{}
	for _, q := range queues {
		ran[q] = &tally{}
	}
	for range 2 {
		p := openAt(d.t, d.url("worker"), worqr.Options{Prefix: "worqr"})
		for _, q := range queues {
			p.Queue(q).Handle(ran[q].handle, nil)
		}
		run(d.t, p)
	}
	producer := openAt(d.t, d.url("worker"), worqr.Options{Prefix: "worqr"})
	return func(what string) {
		d.t.Helper()
		for _, q := range queues {
			eventually(d.t, what+": a task is enqueued", func() bool { return producer.Queue(q).Enqueue(d.t.Context(), []byte(what)) == nil })
			eventually(d.t, what+": a task runs", func() bool { return ran[q].of(what) > 0 })
		}
	}
}

// deploy/sentinel works as its README says: with the worker's rule of docs/security.md and the URL in
// the README, during a manual failover, and when a master dies and comes back as a replica.
func TestDeploySentinel(t *testing.T) {
	redistest.Several(t)
	is := parallel(t)
	d := deploy(t, "sentinel")
	eventually(t, "the sentinels know everybody", func() bool {
		about := sure(redis.StringMap(d.do("sentinel-1", "SENTINEL", "MASTER", "main")))(t)
		return about["num-slaves"] == "2" && about["num-other-sentinels"] == "2" && about["ip"] == "localhost"
	})
	servers := []string{"redis-1", "redis-2", "redis-3"}
	is.Equal(d.role("redis-1"), "master")
	d.configured("redis-2", map[string]string{
		"appendonly": "yes", "maxmemory-policy": "noeviction", "min-replicas-to-write": "1", "min-replicas-max-lag": "3",
	})
	runsNow := d.works("mails")
	runsNow("before")
	_, err := d.do("sentinel-1", "SENTINEL", "FAILOVER", "main")
	is.NoErr(err)
	second := d.master("redis-1", servers...)
	runsNow("by hand")
	eventually(t, "the old master follows", func() bool { return d.role("redis-1") == "slave" })
	eventually(t, "no failover is under way", func() bool {
		return !strings.Contains(sure(redis.StringMap(d.do("sentinel-1", "SENTINEL", "MASTER", "main")))(t)["flags"], "failover")
	})
	d.dies(second, func() { d.master(second, servers...) }, runsNow)
	runsNow("after")
	d.judge()
}

// deploy/cluster works as its README says, too: when a replica is promoted by hand, a master dies,
// or another one gives away all its slots.
func TestDeployCluster(t *testing.T) {
	redistest.Several(t)
	is := parallel(t)
	d := deploy(t, "cluster")
	eventually(t, "the cluster is complete", func() bool {
		ranges := sure(redis.Values(d.do("redis-1", "CLUSTER", "SLOTS")))(t)
		return len(ranges) == 3 && len(ranges[0].([]any)) == 4
	})
	d.configured("redis-4", map[string]string{
		"appendonly": "yes", "maxmemory-policy": "noeviction", "cluster-require-full-coverage": "no", "cluster-allow-pubsubshard-when-down": "yes",
	})
	low := "" // the name of a queue among the first slots of the second master
	for i := 0; low == ""; i++ {
		name := fmt.Sprint("q", i)
		if slot := sure(redis.Int(d.do("redis-1", "CLUSTER", "KEYSLOT", "{"+name+"}")))(t); slot > 5461 && slot < 5500 {
			low = name
		}
	}
	runsNow := d.works("mails", "films", "photos", low)
	runsNow("before")

	replica := d.replicaOf("redis-1")
	eventually(t, "a replica takes over", func() bool {
		_, err := d.do(replica, "CLUSTER", "FAILOVER")
		// The replica keeps trying for 5 s, and another call would start over.
		for began := time.Now(); err == nil && d.role(replica) != "master" && time.Since(began) < 6*time.Second; {
			time.Sleep(20 * time.Millisecond) // polling interval
		}
		return d.role(replica) == "master"
	})
	runsNow("by hand")

	second := d.replicaOf("redis-3")
	d.dies("redis-3", func() { d.master("redis-3", second) }, runsNow)

	id := func(of string) string { return sure(redis.String(d.do(of, "CLUSTER", "MYID")))(t) }
	d.cli("--cluster", "reshard", "127.0.0.1:"+d.ports["7102"], "--cluster-from", id("redis-2"), "--cluster-to", id(replica),
		"--cluster-slots", "50", "--cluster-yes")
	where := sure(redis.Values(d.do("redis-2", "CLUSTER", "SLOTS")))(t)
	is.True(slices.ContainsFunc(where, func(r any) bool { return r.([]any)[0].(int64) == 5461+50 }))
	runsNow("moved")
	d.judge()
}

// dies kills a master, and restarts it once another one has been promoted and tasks run.
func (d *deployment) dies(master string, promoted func(), runsNow func(what string)) {
	d.t.Helper()
	_ = d.run[master].Process.Kill() // Wait returns how it ended
	_ = d.run[master].Wait()
	promoted()
	runsNow("killed")
	must(d.t, d.launch(master, d.run[master].Args[1:])) // with its old data
	eventually(d.t, "the dead master comes back as a replica", func() bool { return d.role(master) == "slave" })
}

// replicaOf waits until a master has a connected replica, and returns it.
func (d *deployment) replicaOf(master string) (replica string) {
	d.t.Helper()
	eventually(d.t, "a replica follows", func() bool {
		said := sure(redis.Values(d.do(master, "ROLE")))(d.t)
		replicas := said[2].([]any)
		if len(replicas) != 1 {
			return false
		}
		port := string(replicas[0].([]any)[1].([]byte))
		for service, cmd := range d.run {
			if slices.Contains(cmd.Args, "port "+port) {
				replica = service
			}
		}
		return replica != ""
	})
	return replica
}

// cli runs redis-cli as the user with all permissions until it succeeds. It fails as long as the
// nodes don't agree.
func (d *deployment) cli(args ...string) {
	d.t.Helper()
	eventually(d.t, "redis-cli succeeds", func() bool {
		cmd := exec.CommandContext(d.t.Context(), "redis-cli", append([]string{"--user", "admin", "--no-auth-warning"}, args...)...)
		cmd.Env = append(os.Environ(), "REDISCLI_AUTH="+password)
		out, err := cmd.CombinedOutput()
		if err != nil {
			d.t.Logf("redis-cli %s: %v\n%s", args, err, out)
		}
		return err == nil
	})
}

// A server doesn't start without a password of its own.
func TestDeployNeedsAPassword(t *testing.T) {
	is := parallel(t)
	for given, want := range map[string]string{"": "set PASSWORD", "SECRET": "set PASSWORD", "a/b": "letters and digits", "a b": "letters and digits"} {
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), "sh", "../../deploy/start.sh", "sentinel/redis.conf", "port 0")
		cmd.Env = append(os.Environ(), "DATA="+home, "PASSWORD="+given)
		out, err := cmd.CombinedOutput()
		is.True(err != nil)
		if !strings.Contains(string(out), want) {
			t.Errorf("with the password %q: %s", given, out)
		}
		is.Equal(len(sure(os.ReadDir(home))(t)), 0)
	}
}

// The users in deploy have the rules of docs/security.md, and image names have no registry.
func TestDeployFiles(t *testing.T) {
	is := parallel(t)
	users := deployed(t, "users.acl")
	for _, role := range []string{"worker", "doctor"} {
		_, rule, _ := strings.Cut(users, "\nuser "+role+" ")
		rule, _, _ = strings.Cut(rule, "\n")
		is.Equal(strings.Fields(rule), slices.Concat(redistest.Rule(t, role, "worqr"), redistest.ClusterRule(t, role)))
	}
	for _, file := range append(matching(t, "../../deploy/*"), matching(t, "../../deploy/*/*")...) {
		if s := sure(os.Stat(file))(t); !s.IsDir() {
			is.Equal(registries.FindString(contents(t, file)), "")
		}
	}
}
