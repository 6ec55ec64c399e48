package store

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
)

// Oldest is the oldest version of Redis that has all commands used here.
const Oldest = "6.2"

// Told is what Redis reports about itself in INFO.
type Told map[string]string

// Tell reads a section of INFO.
func (t Told) Tell(ctx context.Context, r Runner, section string) error {
	return t.TellAll(ctx, r, section)[0]
}

func (t Told) read(reply redisconn.Reply) error {
	text, err := redis.String(reply.Value, reply.Err)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			t[name] = value
		}
	}
	return err
}

// TellAll reads several sections in one exchange, and returns an error for each. A single command
// takes several sections only since Redis 7.0.
func (t Told) TellAll(ctx context.Context, r Runner, sections ...string) []error {
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
