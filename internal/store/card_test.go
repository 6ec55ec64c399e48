package store

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// The texts of cards are part of the protocol.
func TestCard(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]Card{
		"0":                             {},
		"10001764000000000":             {Expires: 1764000000000},
		"40086400000":                   {Keep: 86400000},
		"500017640000000000086400000":   {Expires: 1764000000000, Keep: 86400000},
		"0t4:1500":                      {Timeout: 1500 * time.Millisecond},
		"0m1:5":                         {MaxRetries: 5},
		"0m1:0":                         {MaxRetries: -1},
		"0s13:1764000000000":            {Since: 1764000000000},
		"0h0:v0:":                       {Headers: map[string]string{"": ""}},
		"0h2:\x00\xffv2:\r\nh1:av3:x:y": {Headers: map[string]string{"a": "x:y", "\x00\xff": "\r\n"}},
	} {
		if got := string(c.Append(nil)); got != text {
			t.Errorf("%+v is %q, want %q", c, got, text)
		}
		if got, ok := ParseCard(text); !ok || !reflect.DeepEqual(got, c) {
			t.Errorf("%q is read as %+v, %t, want %+v", text, got, ok, c)
		}
	}
	large := Card{Expires: 1<<53 - 1, Keep: MaxKeep.Milliseconds(), Timeout: time.Duration(1<<63 - 1), MaxRetries: 1 << 30, Since: 1<<53 - 1, Headers: map[string]string{}}
	for i := range MaxHeaders {
		large.Headers[fmt.Sprintf("%02d", i)] = strings.Repeat("x", MaxHeaderBytes/MaxHeaders-2)
	}
	text := string(large.Append(nil))
	if len(text) > MaxCard {
		t.Errorf("the largest has %d bytes, and %d are allowed", len(text), MaxCard)
	}
	large.Timeout = large.Timeout.Truncate(time.Millisecond)
	if got, ok := ParseCard(text); !ok || !reflect.DeepEqual(got, large) {
		t.Errorf("the largest is read as %+v, %t", got, ok)
	}
}

// Scripts store large payloads elsewhere, and later versions may have more letters.
func TestCardOfOthers(t *testing.T) {
	t.Parallel()
	want := Card{MaxRetries: 3, Headers: map[string]string{"a": "b"}}
	for _, text := range []string{"2m1:3h1:av1:b", "0z4:m1:9m1:3x0:h1:av1:b", "0m1:7m1:3h1:av1:ch1:av1:b"} {
		if got, ok := ParseCard(text); !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is read as %+v, %t", text, got, ok)
		}
	}
}

func TestCardDamaged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "8", "x", " ", "1", "1000176400000000", "1x001764000000000", "4", "4-000086400", "0t", "0t4", "0t4:150", "0t:", "0t-1:", "0t1:x", "0m1:-", "0m2:-1",
		"0h1:a", "0h1:am1:3", "0v1:", "0h99999:a", "0h999999999999999999999:a", "0s20:99999999999999999999", "0t1", strings.Repeat("0", MaxCard+1), tooMany()} {
		if got, ok := ParseCard(text); ok || !reflect.DeepEqual(got, Card{}) {
			t.Errorf("%q is read as %+v, %t", text, got, ok)
		}
		if got := CardOf("k:x", text); !reflect.DeepEqual(got, Card{}) {
			t.Errorf("%q gives a task %+v", text, got)
		}
	}
}

// tooMany returns a card with one header too many.
func tooMany() string {
	c := Card{Headers: map[string]string{}}
	for i := range MaxHeaders + 1 {
		c.Headers[fmt.Sprint(i)] = ""
	}
	return string(c.Append(nil))
}

// The key of an added task shows how long it has waited; for other tasks, the card does.
func TestCardSince(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry, text string
		since       int64
	}{
		{"k:019ab697-e800-7012-8004-133456789abc", "0", 1764000000000},
		{"k:019ab697-e800-7012-8004-133456789abc", "damaged", 1764000000000},
		{"k:019ab697-e800-7012-8004-133456789abc", "0s1:5", 5},
		{"k:mine", "0s1:5", 5},
		{"k:mine", "0", 0},
		{"", "", 0},
	} {
		if got := CardOf(c.entry, c.text).Since; got != c.since {
			t.Errorf("%s with %q waits since %d, want %d", c.entry, c.text, got, c.since)
		}
	}
}

// FuzzCard checks that a card that was parsed and written again is unchanged.
func FuzzCard(f *testing.F) {
	for _, text := range []string{"0", "500017640000000000086400000", "0t4:1500m1:5s13:1764000000000h1:av1:b", "2h0:v0:z1:x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, ok := ParseCard(text)
		again, same := ParseCard(string(c.Append(nil)))
		if ok && (!same || !reflect.DeepEqual(c, again)) {
			t.Errorf("%q is read as %+v, and then as %+v", text, c, again)
		}
	})
}
