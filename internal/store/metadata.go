package store

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// Metadata has the properties of a task that only its worker needs. In Redis it's text, before the
// payload: for each property a letter, a length, a colon and that many bytes. The letters are
// t (timeout), m (retries), and h with the name of a header, followed by v with its value. Readers
// skip letters that they don't know.
type Metadata struct {
	Timeout    time.Duration     // in ms; 0: the queue's
	MaxRetries int               // 0: the queue's; negative: none
	Headers    map[string]string // nil: none
}

// The limits of metadata.
const (
	MaxHeaders     = 64
	MaxHeaderBytes = 8 << 10 // names and values
	maxMetadata    = MaxHeaderBytes + 1<<10
)

// Append appends the text of the metadata to b. Equal metadata has equal texts.
func (m *Metadata) Append(b []byte) []byte {
	if ms := m.Timeout.Milliseconds(); ms > 0 {
		b = appendField(b, 't', strconv.FormatInt(ms, 10))
	}
	if m.MaxRetries != 0 {
		b = appendField(b, 'm', strconv.Itoa(max(m.MaxRetries, 0)))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		b = appendField(b, 'h', name)
		b = appendField(b, 'v', m.Headers[name])
	}
	return b
}

func appendField(b []byte, letter byte, value string) []byte {
	b = strconv.AppendInt(append(b, letter), int64(len(value)), 10)
	return append(append(b, ':'), value...)
}

// parseMetadata reads the text of metadata. ok is false if it's damaged.
func parseMetadata(text string) (m Metadata, ok bool) {
	p := metadataParser{rest: text}
	p.bad = len(text) > maxMetadata
	for p.rest != "" && !p.bad {
		p.field(&m)
	}
	if p.bad || len(m.Headers) > MaxHeaders {
		return Metadata{}, false
	}
	return m, true
}

// A metadataParser reads metadata from front to back.
type metadataParser struct {
	rest string
	bad  bool
}

// field reads a letter and its value.
func (p *metadataParser) field(m *Metadata) {
	letter, value := p.next()
	switch letter {
	case 't':
		m.Timeout = time.Duration(min(p.number(value), longestTimeout)) * time.Millisecond
	case 'm':
		if m.MaxRetries = int(min(p.number(value), 1<<30)); m.MaxRetries == 0 {
			m.MaxRetries = -1
		}
	case 'h':
		behind, content := p.next()
		if behind != 'v' {
			p.bad = true
			return
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[value] = content
	case 'v':
		p.bad = true
	}
}

// longestTimeout is about 290 years, in ms.
const longestTimeout = int64(1<<63-1) / int64(time.Millisecond)

func (p *metadataParser) next() (letter byte, value string) {
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
	if n > len(p.rest) {
		p.bad = true
		return 0, ""
	}
	value, p.rest = p.rest[:n], p.rest[n:]
	return letter, value
}

// number reads a number that isn't negative.
func (p *metadataParser) number(digits string) int64 {
	n, err := strconv.ParseUint(digits, 10, 63)
	p.bad = p.bad || err != nil
	return int64(n)
}
