package store

import (
	"cmp"
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Oldest is the oldest version of Redis that has all commands used here.
const Oldest = "6.2"

// Told is what Redis reports about itself in INFO.
type Told map[string]string

func (t Told) read(reply redisconn.Reply) error {
	text, err := redis.String(reply.Value, reply.Err)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			t[name] = value
		}
	}
	return err
}

// Tell reads several sections of INFO in one exchange, and returns an error for each. A single command
// takes several sections only since Redis 7.0.
func (t Told) Tell(ctx context.Context, r Runner, sections ...string) []error {
	errs := make([]error, len(sections))
	info := func(section string) redisconn.Call { return redisconn.Command("INFO", section) }
	for i, reply := range doEach(ctx, r, sections, info) {
		errs[i] = t.read(reply)
	}
	return errs
}

// Policy returns what Redis does when its memory is full.
func (t Told) Policy() Policy {
	return Policy{t["maxmemory_policy"], numberIn(t["used_memory"]), numberIn(t["maxmemory"])}
}

// A Policy is what Redis does when its memory is full.
type Policy struct {
	Name    string // maxmemory-policy; "" if unknown
	Used    int64  // bytes
	Maximum int64  // bytes; 0: no limit
}

// EvictsLists reports whether Redis may evict any key.
func (p Policy) EvictsLists() bool { return strings.HasPrefix(p.Name, "allkeys-") }

// EvictsExpiring reports whether Redis may evict keys with a TTL.
func (p Policy) EvictsExpiring() bool { return strings.HasPrefix(p.Name, "volatile-") }

// IsOlder reports whether version v is older than the other one. It compares only as many parts as
// that one has.
func IsOlder(v, than string) bool {
	parts := strings.Split(v, ".")
	for i, want := range strings.Split(than, ".") {
		has, least := 0, 0
		if i < len(parts) {
			has, _ = strconv.Atoi(parts[i]) // 0 if it isn't a number
		}
		least, _ = strconv.Atoi(want)
		if has != least {
			return has < least
		}
	}
	return false
}

// IsAway reports whether an error says that Redis, or a node, can't be used at present.
func IsAway(err error) bool { return redisconn.Away(err) }

// IsMoving reports whether a call was refused because its slot is moving.
func IsMoving(err error) bool { return err != nil && strings.Contains(err.Error(), "TRYAGAIN") }

// IsFull reports whether Redis has no memory left for a command.
func IsFull(err error) bool { return redisconn.Full(err) }

// IsDenied reports whether Redis denied the user a permission.
func IsDenied(err error) bool { return redisconn.Denied(err) }

// IsBadLogin reports whether Redis refuses the user or the password.
func IsBadLogin(err error) bool { return redisconn.BadLogin(err) }

// DeniedCommand reports whether Redis denied the user a permission, and for which command, if the
// error names it.
func DeniedCommand(err error) (command string, denied bool) {
	if !redisconn.Denied(err) {
		return "", false
	}
	if m := deniedCommand.FindStringSubmatch(err.Error()); m != nil {
		command = strings.ToUpper(m[1])
	}
	return command, true
}

var deniedCommand = regexp.MustCompile(`the '([a-z]+)[a-z|]*' command`)

// A Backoff is the time between tries.
type Backoff = redisconn.Backoff

// IsRepeatable reports whether Redis hasn't carried out a call for a reason that passes by itself: replicas are missing, the
// slot is moving, the scripts were flushed, memory or disk are full, or a script runs for long.
func IsRepeatable(err error) bool { return redisconn.Repeatable(err) }

// IsAnswer reports whether an error is a reply of Redis, which shows that it's up.
func IsAnswer(err error) bool { return redisconn.Answered(err) }

// IsUnsent reports whether a call wasn't sent, since there was no connection, even if Redis has refused one.
func IsUnsent(err error) bool { return redisconn.Unsent(err) }

// A Notice is a kind of message to a worker.
type Notice string

// The notices.
const (
	Woken      Notice = "wake"   // a script has woken the worker; AskHeartbeat is the message that asks for a heartbeat
	Work       Notice = "work"   // a producer that only pushes and publishes has added tasks
	IsCanceled Notice = "cancel" // a payload was canceled; the message is that, or has its digest
)

// AskHeartbeat is the message of a Woken whose worker is to send a heartbeat, since attempts must stop.
const AskHeartbeat = "0"

// Aliases for packages that name keys.
type (
	Space = keys.Space // the keys of a fleet
	Keys  = keys.Queue // the keys of a queue
	Key   = keys.Key   // one key, parsed
)

// DefaultPrefix is the prefix of a fleet that hasn't chosen one.
const DefaultPrefix = keys.DefaultPrefix

// SpaceOf returns the keys with a prefix.
func SpaceOf(prefix string) Space { return keys.NewSpace(prefix) }

// MaxName is the longest allowed name of a queue, or prefix, in bytes.
const MaxName = keys.MaxName

// CheckName returns why name can't be the name of a queue, or nil.
func CheckName(name string) error { return keys.CheckName(name) }

// CheckPrefix returns why prefix can't be a prefix, or nil.
func CheckPrefix(prefix string) error { return keys.CheckPrefix(prefix) }

// Somewhere is the home of a queue if there is only one server, or if it isn't known.
const Somewhere = ""

// An Absence records unusable cluster nodes for callers that go through many keys: they skip the
// other keys of such a node, since each call would wait for its timeout.
type Absence struct {
	of   Runner
	away map[string]bool // nodes
	err  error           // the first one
}

// owning returns the node that owns a key.
type owning interface{ Owner(key string) string }

// home returns the node that has a key; "" if it isn't known.
func (a *Absence) home(key string) string {
	if o, ok := a.of.(owning); ok {
		return o.Owner(key)
	}
	return Somewhere
}

// has reports whether the node that has a key is away.
func (a *Absence) has(key string) bool { return len(a.away) > 0 && a.away[a.home(key)] }

// note records why a node is away, unless err is nil.
func (a *Absence) note(home string, err error) {
	if err == nil {
		return
	}
	if a.away == nil {
		a.away = map[string]bool{}
	}
	a.away[home], a.err = true, cmp.Or(a.err, err)
}

// groups returns names grouped by the nodes that have their keys.
func (a *Absence) groups(names []string, key func(name string) string) map[string][]string {
	by := map[string][]string{}
	for _, name := range names {
		home := a.home(key(name))
		by[home] = append(by[home], name)
	}
	return by
}

// NewAbsence returns an empty Absence.
func NewAbsence(r Runner) *Absence { return &Absence{of: r} }

// Has reports whether the node that has a queue is away.
func (a *Absence) Has(q Keys) bool { return a.has(q.Waiting()) }

// Note records that the node of a queue is down, if err says so. It reports whether err does: then
// skip the queues of that node. Queues on other nodes aren't affected.
func (a *Absence) Note(q Keys, err error) bool {
	home := a.home(q.Waiting())
	if home == Somewhere || !IsAway(err) {
		return false
	}
	if !IsMoving(err) { // a moving slot affects that queue alone
		a.note(home, err)
	}
	return true
}
