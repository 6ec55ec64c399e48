package dash

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/worqr/worqr/internal/words"
)

// amount formats a number with about three digits.
func amount(f float64) string {
	switch abs := math.Abs(f); {
	case abs >= 999_500:
		return strconv.FormatFloat(f/1e6, 'g', 3, 64) + " M"
	case abs >= 9_995:
		return strconv.FormatFloat(f/1e3, 'g', 3, 64) + " k"
	case abs >= 99.5 || f == math.Trunc(f):
		return words.Grouped(int(math.Round(f)))
	case abs >= 9.95:
		return strconv.FormatFloat(f, 'f', 0, 64)
	case abs < 0.05:
		return "0"
	}
	return strconv.FormatFloat(f, 'f', 1, 64)
}

// span formats a duration with one or two units.
func span(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case d < 0:
		return "0 s"
	case d > 0 && d < time.Millisecond:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 600 && s%60 > 0:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	case s < 3600:
		return fmt.Sprintf("%d min", s/60)
	case s < 86400:
		return whole(fmt.Sprintf("%d h %d min", s/3600, s%3600/60))
	}
	return whole(fmt.Sprintf("%d d %d h", s/86400, s%86400/3600))
}

// whole leaves out a second unit of 0.
func whole(span string) string {
	first, rest, _ := strings.Cut(span, " 0 ")
	if rest == "" {
		return span
	}
	return first
}

func size(n int) string {
	switch {
	case n < 10_000:
		return words.Counted(n, "byte")
	case n < 10<<20:
		return words.Grouped(n>>10) + " KiB"
	}
	return words.Grouped(n>>20) + " MiB"
}

// printable replaces the characters in text from outside that don't print, or that change the direction of what
// follows.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, strings.ToValidUTF8(s, "�"))
}

// line returns printable text on one line, cut after n characters. It shows something of any text: it may be that
// of a link.
func line(s string, n int) string {
	cut := len(s) > 4*n
	all := []rune(strings.Join(strings.Fields(printable(s[:min(len(s), 4*n)])), " "))
	if len(all) == 0 && s != "" {
		all, n = []rune("(blank)"), 8
	}
	if len(all) > n || cut {
		return string(all[:min(len(all), n-1)]) + "…"
	}
	return string(all)
}

// Limits of the part of a payload that is shown, in bytes.
const (
	shownPayload = 64 << 10 // on the task's page
	shownInLists = 512
	dumped       = 1 << 10 // of a binary one
)

// payload returns a payload as text, or "" if it's hidden.
func (d *dashboard) payload(queue string, payload []byte, limit int) string {
	if d.opts.Payload != nil {
		text := d.hooks.payload(queue, payload)
		return printable(text[:min(len(text), limit)])
	}
	cut := payload[:min(len(payload), limit)]
	if len(payload) == 0 {
		return "(empty)"
	}
	if !isText(cut) {
		if limit <= shownInLists {
			return "(" + size(len(payload)) + " that aren't text)"
		}
		return hex.Dump(cut[:min(len(cut), dumped)])
	}
	return printable(string(cut))
}

// pretty returns a payload as the task's page shows it: JSON is indented, unless that makes it much longer.
func (d *dashboard) pretty(queue string, payload []byte) string {
	var b bytes.Buffer
	if d.opts.Payload == nil && len(payload) <= shownPayload && indents(payload) <= mostIndents && json.Indent(&b, payload, "", "  ") == nil {
		return printable(b.String())
	}
	return d.payload(queue, payload, shownPayload)
}

// mostIndents limits the sum of the indentation levels of all lines of a payload.
const mostIndents = 2 * shownPayload

// indents returns the sum of the indentation levels of all lines of JSON; or more than mostIndents.
func indents(b []byte) (sum int) {
	depth, quoted := 0, false
	for i := 0; i < len(b) && sum <= mostIndents; i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			depth++
			sum += depth
		case c == ']' || c == '}':
			depth--
			sum += max(depth, 0)
		case c == ',':
			sum += max(depth, 0)
		}
	}
	return sum
}

// isText reports whether most of a payload, which may have been cut, is text.
func isText(b []byte) bool {
	odd := 0
	for _, r := range string(b) {
		if r == utf8.RuneError || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			odd++
		}
	}
	return odd <= len(b)/20
}

// digest returns the name of a payload in links, which end up in logs.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:10])
}

// link returns a page with parameters, in pairs; it leaves out empty ones.
func link(page string, pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return "./" + page
	}
	return page + "?" + v.Encode()
}
