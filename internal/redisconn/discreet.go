package redisconn

import (
	"bytes"
	"errors"
	"net/url"
	"strings"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/logs"
)

// Discreet removes secrets from an error. A server that doesn't know a command, because it was
// renamed or isn't a Redis command, may quote its arguments: a password or a payload. So Discreet
// omits words of an error reply that also occur in the arguments, unless the reply has a code of
// its own, whose text Redis always words alike. It limits the length, and removes control characters.
// It also hides a URL that a pool's dial function couldn't parse, since the error contains the password.
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
	if len(words) > 0 && isCode(words[0]) && words[0] != "ERR" {
		args = nil
	}
	kept := words[:0]
	for _, word := range words {
		if word != "ERR" && repeats(bare(word), args) {
			word = omission
		}
		if n := len(kept); word != omission || n == 0 || kept[n-1] != omission {
			kept = append(kept, word)
		}
	}
	return logs.Printable(strings.Join(kept, " "))
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
