package store

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/worqr/worqr/internal/keys"
)

// A Card holds the properties of a task. In Redis it's text, beside the payload:
//
//	flag [expires, 16 digits] [keep, 10 digits] {letter length:bytes}
//
// The flag is a digit: 1 if expires is there, plus 4 if keep is, plus 2 if scripts have stored the
// payload elsewhere. The letters are t (timeout), m (retries), s (since), and h with the name of a header,
// followed by v with its value. Readers skip letters that they don't know.
type Card struct {
	Expires    int64             // ms of Redis time; 0: never
	Keep       int64             // ms for which the result is kept; 0: not kept
	Timeout    time.Duration     // in ms; 0: the queue's
	MaxRetries int               // 0: the queue's; negative: none
	Since      int64             // ms of Redis time when it was enqueued, if the key doesn't contain it
	Headers    map[string]string // nil: none
}

// The limits of a card.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 8 << 10 // names and values
	MaxCard        = MaxHeaderBytes + 1<<10
	MaxKeep        = 30 * 24 * time.Hour
)

const (
	expiresFlag  = 1
	apartFlag    = 2
	keepFlag     = 4
	expiresWidth = 16
	keepWidth    = 10
)

// Append appends the text of the card to b. Equal cards have equal texts.
func (c *Card) Append(b []byte) []byte {
	flag := byte('0')
	if c.Expires > 0 {
		flag += expiresFlag
	}
	if c.Keep > 0 {
		flag += keepFlag
	}
	b = append(b, flag)
	if c.Expires > 0 {
		b = padded(b, c.Expires, expiresWidth)
	}
	if c.Keep > 0 {
		b = padded(b, c.Keep, keepWidth)
	}
	if ms := c.Timeout.Milliseconds(); ms > 0 {
		b = appendField(b, 't', strconv.FormatInt(ms, 10))
	}
	if c.MaxRetries != 0 {
		b = appendField(b, 'm', strconv.Itoa(max(c.MaxRetries, 0)))
	}
	if c.Since > 0 {
		b = appendField(b, 's', strconv.FormatInt(c.Since, 10))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		b = appendField(b, 'h', name)
		b = appendField(b, 'v', c.Headers[name])
	}
	return b
}

// isApart reports whether the payload of the task with a card is stored elsewhere.
func isApart(card string) bool { return card != "" && (card[0]-'0')&apartFlag != 0 }

// padded appends a number with leading zeros.
func padded(b []byte, n int64, width int) []byte {
	digits := strconv.FormatInt(n, 10)
	for range width - len(digits) {
		b = append(b, '0')
	}
	return append(b, digits...)
}

func appendField(b []byte, letter byte, value string) []byte {
	b = strconv.AppendInt(append(b, letter), int64(len(value)), 10)
	return append(append(b, ':'), value...)
}

// ParseCard reads the text of a card. ok is false if the text is damaged.
func ParseCard(text string) (c Card, ok bool) {
	p := cardParser{rest: text}
	if text == "" || len(text) > MaxCard || text[0] < '0' || text[0] > '7' {
		return Card{}, false
	}
	flag := text[0] - '0'
	p.rest = text[1:]
	if flag&expiresFlag != 0 {
		c.Expires = number(p.take(expiresWidth), &p)
	}
	if flag&keepFlag != 0 {
		c.Keep = number(p.take(keepWidth), &p)
	}
	for p.rest != "" && !p.bad {
		p.field(&c)
	}
	if p.bad || len(c.Headers) > MaxHeaders {
		return Card{}, false
	}
	return c, true
}

// A cardParser reads a card from front to back.
type cardParser struct {
	rest string
	bad  bool
}

// field reads a letter and its value.
func (p *cardParser) field(c *Card) {
	letter, value := p.next()
	switch letter {
	case 't':
		c.Timeout = time.Duration(min(number(value, p), longestTimeout)) * time.Millisecond
	case 'm':
		if c.MaxRetries = int(min(number(value, p), 1<<30)); c.MaxRetries == 0 {
			c.MaxRetries = -1
		}
	case 's':
		c.Since = number(value, p)
	case 'h':
		behind, content := p.next()
		if behind != 'v' {
			p.bad = true
			return
		}
		if c.Headers == nil {
			c.Headers = map[string]string{}
		}
		c.Headers[value] = content
	case 'v':
		p.bad = true
	}
}

// longestTimeout is about 290 years, in ms.
const longestTimeout = int64(1<<63-1) / int64(time.Millisecond)

func (p *cardParser) next() (letter byte, value string) {
	digits := 1
	for digits < len(p.rest) && p.rest[digits] >= '0' && p.rest[digits] <= '9' {
		digits++
	}
	if digits == 1 || digits > 6 || digits == len(p.rest) || p.rest[digits] != ':' {
		p.bad = true
		return 0, ""
	}
	n, _ := strconv.Atoi(p.rest[1:digits]) // at most five digits
	letter, p.rest = p.rest[0], p.rest[digits+1:]
	return letter, p.take(n)
}

// take reads n bytes.
func (p *cardParser) take(n int) string {
	if n > len(p.rest) {
		p.bad, p.rest = true, ""
		return ""
	}
	some := p.rest[:n]
	p.rest = p.rest[n:]
	return some
}

// number reads a number that isn't negative.
func number(digits string, p *cardParser) int64 {
	n, err := strconv.ParseUint(digits, 10, 63)
	p.bad = p.bad || err != nil
	return int64(n)
}

// CardOf reads the card of the task with an entry. A damaged or empty text has no properties.
func CardOf(entry, text string) Card {
	c, _ := ParseCard(text)
	if c.Since == 0 {
		if at, ok := keys.AddedAt(KeyOf(entry)); ok {
			c.Since = at.UnixMilli()
		}
	}
	return c
}
