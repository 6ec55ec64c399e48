package keys_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/worqr/worqr/internal/keys"
)

// Keys are part of the protocol: other languages may create them, too.
func TestAddedKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, salt, key string }{
		{"1764000000000-1043", "0123456789abc", "019ab697-e800-7012-8004-133456789abc"},
		{"0-1", "0000000000000", "00000000-0000-7000-8000-010000000000"},
		{"281474976710655-1048575", "fffffffffffff", "ffffffff-ffff-7fff-8fff-ffffffffffff"},
	} {
		key, ok := keys.AddedKey(c.id, c.salt)
		if !ok || key != c.key {
			t.Errorf("%s %s: key %s, %t, want %s", c.id, c.salt, key, ok, c.key)
		}
		if id, err := uuid.Parse(key); err != nil || id.Version() != 7 || id.Variant() != uuid.RFC4122 {
			t.Errorf("%s is no UUIDv7: %v", key, err)
		}
		name, ok := keys.AddedName(key)
		if want := "a:" + c.id + "-" + c.salt; !ok || name != want {
			t.Errorf("%s: name %s, %t, want %s", key, name, ok, want)
		}
		for _, card := range []string{"", "0", "0h1:a", "-a:b"} {
			if k, rest, ok := keys.SplitAdded(name + card); !ok || k != key || rest != card {
				t.Errorf("%s%s is read as %s, %q, %t", name, card, k, rest, ok)
			}
		}
	}
	if at, ok := keys.AddedAt("019ab697-e800-7012-8004-133456789abc"); !ok || !at.Equal(time.UnixMilli(1764000000000)) {
		t.Errorf("it was enqueued at %v, %t", at, ok)
	}
}

// Invalid keys, names and values aren't added tasks.
func TestAddedRefused(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "1", "-", "1-", "-1", "01-1", "1-01", "+1-1", "1-1-1", "281474976710656-0", "1-1048576", "a-1", "18446744073709551616-1"} {
		if key, ok := keys.AddedKey(id, "0123456789abc"); ok {
			t.Errorf("id %q has the key %s", id, key)
		}
	}
	for _, salt := range []string{"", "0123456789ab", "0123456789abcd", "0123456789abC", "0123456789ab-"} {
		if key, ok := keys.AddedKey("1-1", salt); ok {
			t.Errorf("salt %q has the key %s", salt, key)
		}
	}
	good := "019ab697-e800-7012-8004-133456789abc"
	for _, key := range []string{"", "k:a", strings.ToUpper(good), good + "0", good[1:], strings.Replace(good, "-7", "-4", 1), strings.Replace(good, "-8", "-9", 1),
		strings.ReplaceAll(good, "-", "0"), strings.Replace(good, "9ab6", "9agz", 1), strings.Replace(good, "abc", "ab-", 1), strings.Replace(good, "-8004", "-8o04", 1)} {
		if name, ok := keys.AddedName(key); ok {
			t.Errorf("key %q has the name %s", key, name)
		}
		if at, ok := keys.AddedAt(key); ok || !at.IsZero() {
			t.Errorf("key %q was enqueued at %v", key, at)
		}
	}
	for _, value := range []string{"", "a:", "k:1-1-0123456789abc", "a:1", "a:1-1", "a:1-x-0123456789abc0", "a:1-1-0123456789ab", "a:1-1-payload of others"} {
		if key, _, ok := keys.SplitAdded(value); ok {
			t.Errorf("%q is read as %s", value, key)
		}
	}
}

// An item that another program put into the stream may have any field.
func TestSplitField(t *testing.T) {
	t.Parallel()
	if salt, card, ok := keys.SplitField("0123456789abc0h1:a"); !ok || salt != "0123456789abc" || card != "0h1:a" {
		t.Errorf("%q, %q, %t", salt, card, ok)
	}
	for _, field := range []string{"", "payload", "0123456789abc", "0123456789abcx", "0123456789abX0", "0123456789abc8"} {
		if salt, card, ok := keys.SplitField(field); ok || salt != "" || card != "" {
			t.Errorf("%q is read as %q and %q", field, salt, card)
		}
	}
}

// The keys of tasks that are added together are consecutive.
func TestAddedKeys(t *testing.T) {
	t.Parallel()
	all, ok := keys.AddedKeys("a:1764000000000-254-0123456789abc", 3)
	want := []string{"019ab697-e800-7012-8000-fe3456789abc", "019ab697-e800-7012-8000-ff3456789abc", "019ab697-e800-7012-8001-003456789abc"}
	if !ok || !slices.Equal(all, want) {
		t.Errorf("%q, %t", all, ok)
	}
	if all, ok := keys.AddedKeys("a:1-1048573-0123456789abc", 3); !ok || len(all) != 3 {
		t.Errorf("the last: %q, %t", all, ok)
	}
	for _, first := range []string{"", "k:a", "a:1-1048574-0123456789abc", "a:1-1-0123456789abc0"} {
		if all, ok := keys.AddedKeys(first, 3); ok {
			t.Errorf("%q: %q", first, all)
		}
	}
	key := keys.NewKey(time.UnixMilli(1764000000000))
	if at, ok := keys.AddedAt(key); !ok || at.UnixMilli() != 1764000000000 {
		t.Errorf("%s is of %v", key, at)
	}
}
