package logs

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// MaxText is how many bytes of an error's text are logged or kept.
const MaxText = 4096

// WithoutInput removes from an error the text that couldn't be parsed as a number: it may be a
// payload.
func WithoutInput(err error) error {
	if _, ok := errors.AsType[*strconv.NumError](err); ok {
		return errNumber
	}
	return err
}

var errNumber = errors.New("the reply contains something other than a number where one was expected; run worqr check")

// Text returns the text of an error or of a recovered value, limited and without control
// characters, even if its methods panic. It runs user code.
func Text(v any) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("%T, whose Error method panics", v)
		}
	}()
	if err, ok := v.(error); ok {
		text = err.Error()
	} else {
		text = fmt.Sprint(v)
	}
	return Printable(text)
}

// Hash returns the beginning of the digest of a key or payload, for the log, which doesn't show
// those.
func Hash(secret string) string {
	sum := sha1.Sum([]byte(secret))
	return "#" + hex.EncodeToString(sum[:4])
}

// Printable returns at most MaxText bytes of a text, with escapes for characters that a terminal
// would interpret.
func Printable(text string) string {
	if len(text) > MaxText {
		text = text[:MaxText]
	}
	text = strings.ToValidUTF8(text, "�")
	if strings.IndexFunc(text, unprintable) < 0 {
		return text
	}
	var b strings.Builder
	for _, c := range text {
		if unprintable(c) {
			quoted := strconv.QuoteRuneToASCII(c)
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func unprintable(c rune) bool { return !unicode.IsPrint(c) }

// Gist returns the part of an error's text that stays the same when the error repeats: without
// digits, as in ports.
func Gist(err error) string { return digits.ReplaceAllString(Text(err), "") }

var digits = regexp.MustCompile(`[0-9]+`)

// Show prints the type of a value and its LogValue, for Format methods that hide the fields.
func Show(s fmt.State, what string, of slog.LogValuer) {
	_, _ = fmt.Fprint(s, what, of.LogValue())
}
