package spec

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redistest"
)

// A difference is what another server does not do as Redis does it: the smallest
// request that shows it, the beginning of what each answers, and the tests of the
// tables that fail for it.
type difference struct {
	what    string
	request []any
	redis   string
	other   string
	tests   *regexp.Regexp // nil: the scripts and the tables mind it, and all pass
}

func script(source string) []any { return []any{"EVAL", source, 0} }

// ofMiniredis are the differences between miniredis and Redis that the scripts or
// their tables meet.
var ofMiniredis = []difference{
	{
		what:    "there are no users who may do less than others",
		request: []any{"ACL", "SETUSER", "somebody"},
		redis:   "OK",
		other:   "ERR unknown command `ACL`",
		tests:   regexp.MustCompile(`^TestMute$|^TestMute/|^TestGuardLook$|^TestGuardAlone$|^TestGuardObserved/unknown$|^TestHintsOnly/.*/channels$`),
	},
	{
		what:    "whole scores that end in many zeros are written with an exponent",
		request: script(`redis.call('ZADD', 'scores', 8000000000000, 'a') local s = redis.call('ZSCORE', 'scores', 'a') redis.call('DEL', 'scores') return s`),
		redis:   "8000000000000",
		other:   "8e+12",
		tests:   regexp.MustCompile(`^TestGuardStep/a_token_beyond_all_times`),
	},
	{
		what:    "an error that a command raises in a script comes behind others",
		request: script(`redis.call('SET', 'string', '') redis.call('LLEN', 'string')`),
		redis:   "WRONGTYPE Operation",
		other:   "ERR Error compiling script (new function): ",
	},
	{
		what:    "string.match returns no value, instead of nil, where nothing matches",
		request: script(`return select('#', string.match('a', 'b'))`),
		redis:   "1",
		other:   "0",
	},
}

// TestDifferences asks both what the table is about.
func TestDifferences(t *testing.T) {
	m := miniredis.RunT(t)
	for _, d := range ofMiniredis {
		d.compare(t, redistest.URL(), "redis://"+m.Addr())
	}
}

// compare asks Redis and the other server for what the difference is about.
func (d difference) compare(t *testing.T, redis, other string) {
	t.Run(d.what, func(t *testing.T) {
		for url, want := range map[string]string{redis: d.redis, other: d.other} {
			if got := answer(redistest.Dial(t, url), d.request); !strings.HasPrefix(got, want) {
				t.Errorf("%s answers %v\n  with %s\nand the table says\n  %s", url, d.request, got, want)
			}
		}
	})
}

func answer(c redis.Conn, request []any) string {
	v, err := c.Do(request[0].(string), request[1:]...)
	if err != nil {
		return err.Error()
	}
	if b, ok := v.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(v)
}

// TestTablesOnMiniredis runs the tables on miniredis.
func TestTablesOnMiniredis(t *testing.T) {
	m := miniredis.RunT(t)
	leaves, out := tables(t, "redis://"+m.Addr())
	judge(t, leaves, out, ofMiniredis)
}
