package redisconn

import (
	"bytes"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/gomodule/redigo/redis"
)

// Discreet removes secrets from an error. A server that doesn't know a command, because it was
// renamed or isn't a Redis command, may quote its arguments: a password or a payload. So Discreet
// omits words of an error reply that also occur in the arguments, limits the length, and removes
// control characters. It also hides a URL that a pool's dial function couldn't parse, since the
// error contains the password.
func Discreet(err error, args ...any) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*url.Error](err); ok || strings.Contains(err.Error(), "url is opaque") {
		return errPoolURL
	}
	if e, ok := errors.AsType[redis.Error](err); ok {
		return redis.Error(reticent(string(e), args))
	}
	return err
}

// unfamiliar is Discreet for unknown arguments: it shows only words that Redis uses in its errors.
func unfamiliar(err error) error {
	err = Discreet(err)
	e, ok := errors.AsType[redis.Error](err)
	if !ok {
		return err
	}
	for i, word := range strings.Fields(string(e)) {
		if !vocabulary[bare(word)] && !(i == 0 && isCode(word)) {
			code, _, _ := strings.Cut(string(e), " ")
			if !isCode(code) {
				code = "ERR"
			}
			return redis.Error(code + " (the server's message isn't shown: it may repeat a password)")
		}
	}
	return err
}

const (
	maxReply = 300      // bytes of an error reply to show
	maxLook  = 64 << 10 // bytes of an argument to compare
	omission = "…"
)

// reticent returns the text of an error reply without words of the arguments.
func reticent(text string, args []any) string {
	text, _, _ = strings.Cut(text, ", with args beginning with:")
	if len(text) > maxReply {
		text = text[:maxReply] + omission
	}
	words := strings.Fields(text)
	kept := words[:0]
	for i, word := range words {
		if i > 0 && !vocabulary[bare(word)] && repeats(bare(word), args) || i == 0 && !isCode(word) && repeats(bare(word), args) {
			word = omission
		}
		if n := len(kept); word != omission || n == 0 || kept[n-1] != omission {
			kept = append(kept, word)
		}
	}
	return printable(strings.Join(kept, " "))
}

// repeats reports whether a word is one of the arguments, or a part of one that is too long to be a
// coincidence.
func repeats(word string, args []any) bool {
	if word == "" {
		return false
	}
	for _, a := range args {
		var arg []byte
		switch a := a.(type) {
		case string:
			arg = []byte(a[:min(len(a), maxLook)])
		case []byte:
			arg = a[:min(len(a), maxLook)]
		default:
			continue
		}
		if string(arg) == word || len(word) >= 4 && bytes.Contains(arg, []byte(word)) ||
			len(arg) >= 4 && strings.Contains(word, string(arg)) {
			return true
		}
	}
	return false
}

// isCode reports whether a word can be the code of an error reply.
func isCode(word string) bool {
	return len(word) <= 20 && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == "" && word != ""
}

// bare returns a word without surrounding punctuation.
func bare(word string) string { return strings.Trim(word, `'"<>().,;:`+"`") }

// printable returns text with escapes for characters that a terminal would interpret.
func printable(text string) string {
	var b strings.Builder
	for _, c := range strings.ToValidUTF8(text, "�") {
		if unicode.IsPrint(c) {
			b.WriteRune(c)
		} else {
			quoted := strconv.QuoteRuneToASCII(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// vocabulary contains the words in the errors of Redis and of the scripts.
var vocabulary = func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(`
WRONGTYPE Operation against a key holding the wrong kind of value
NOAUTH Authentication required
WRONGPASS invalid username-password pair or user is disabled
ERR AUTH <password> called without any password configured for the default user Are you sure your configuration is correct
NOPERM this user has no permissions to run the command or its subcommand
NOPERM this user has no permissions to access one of the keys used as arguments channels
NOPERM No permissions to access a key channel User
LOADING Redis is loading the dataset in memory
BUSY Redis is busy running a script You can only call SCRIPT KILL or SHUTDOWN NOSAVE FUNCTION
READONLY You can't write against a read only replica
MISCONF Redis is configured to save RDB snapshots but it's currently unable to persist on disk not able Commands that may modify the data set are disabled because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option) Please check the Redis logs for details about the RDB error
OOM command not allowed when used memory > 'maxmemory'
NOSCRIPT No matching script Please use EVAL
MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to no
CLUSTERDOWN The cluster is down Hash slot not served MOVED ASK CROSSSLOT Keys in request don't hash to the same slot
NOREPLICAS Not enough good replicas to write
EXECABORT Transaction discarded because of previous errors
ERR max number of clients reached invalid DB index is out of range
ERR unknown command subcommand wrong number of arguments for
ERR Error running script call to value is not an integer or out of range no such key index syntax error
UNKILLABLE Sorry the script already executed write commands
EVICTED the worker is not a member of the queue was evicted or has left
STALE later rounds have been answered DUPLICATE an equal unique task is waiting or running the token counter is not a number
`) {
		all[bare(word)] = true
	}
	return all
}()
