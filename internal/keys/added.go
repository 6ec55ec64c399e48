package keys

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// An added task waits in a stream. Its key is a UUIDv7 made from its id in the stream, which begins
// with the time, and from the salt, which its producer has chosen:
//
//	id 1764000000000-1043 and salt 0123456789abc     M ms, Q sequence, S salt
//	019ab697-e800-7012-8004-133456789abc             MMMMMMMM-MMMM-7SSS-8QQQ-QQSSSSSSSSSS
//
// Its name in Redis is a:1764000000000-1043-0123456789abc. While it runs, its card follows the
// name.

const (
	addedSalt = 13 // hex digits
	saltBits  = 4 * addedSalt
	seqBits   = 20
	msBits    = 48
	addedHead = "a:"
)

// AddedKey returns the key of an added task. It returns false for an invalid id or salt.
func AddedKey(id, salt string) (key string, ok bool) {
	ms, seq, ok := splitID(id)
	if !ok || !isSalt(salt) {
		return "", false
	}
	return addedKey(ms, seq, salt), true
}

func addedKey(ms, seq uint64, salt string) string {
	digits := make([]byte, 0, 36)
	hex := func(n uint64, bits int) {
		for bits > 0 {
			bits -= 4
			digits = append(digits, "0123456789abcdef"[n>>bits&15])
		}
	}
	hex(ms>>16, 32)
	digits = append(digits, '-')
	hex(ms, 16)
	digits = append(append(digits, "-7"...), salt[:3]...)
	digits = append(digits, "-8"...)
	hex(seq>>8, 12)
	digits = append(digits, '-')
	hex(seq, 8)
	return string(append(digits, salt[3:]...))
}

// NewKey returns a key in the form of an added task's, for a task that is put at a time.
func NewKey(at time.Time) string {
	return addedKey(uint64(max(at.UnixMilli(), 0))&(1<<msBits-1), rand.Uint64N(1<<seqBits), NewSalt())
}

// AddedName returns the name in Redis of the added task with a key. It returns false if no added
// task can have this key.
func AddedName(key string) (name string, ok bool) {
	ms, seq, salt, ok := splitKey(key)
	if !ok {
		return "", false
	}
	return addedHead + strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(seq, 10) + "-" + salt, true
}

// AddedKeys returns the keys of n tasks that were added together: first is the name of the first
// one, and the ids of the others follow its id.
func AddedKeys(first string, n int) (all []string, ok bool) {
	key, card, ok := SplitAdded(first)
	ms, seq, salt, _ := splitKey(key)
	if !ok || card != "" || n < 1 || seq+uint64(n) > 1<<seqBits {
		return nil, false
	}
	all = make([]string, n)
	for i := range all {
		all[i] = addedKey(ms, seq+uint64(i), salt)
	}
	return all, true
}

// AddedAt returns when the added task with a key was enqueued, by Redis's clock.
func AddedAt(key string) (at time.Time, ok bool) {
	ms, _, _, ok := splitKey(key)
	if !ok {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(ms)), true
}

// SplitAdded splits the value that Redis has for a running added task: its name, followed by its
// card.
func SplitAdded(value string) (key, card string, ok bool) {
	rest, ok := strings.CutPrefix(value, addedHead)
	if !ok {
		return "", "", false
	}
	ms, rest, _ := strings.Cut(rest, "-")
	seq, field, ok := strings.Cut(rest, "-")
	if !ok || len(field) < addedSalt {
		return "", "", false
	}
	key, ok = AddedKey(ms+"-"+seq, field[:addedSalt])
	return key, field[addedSalt:], ok
}

// SplitField splits the field of an item of the stream. It returns false for an item in another
// form, which wasn't added by worqr.
func SplitField(field string) (salt, card string, ok bool) {
	if len(field) <= addedSalt || !isSalt(field[:addedSalt]) || field[addedSalt] < '0' || field[addedSalt] > '7' {
		return "", "", false
	}
	return field[:addedSalt], field[addedSalt:], true
}

// NewSalt returns a random salt.
func NewSalt() string { return fmt.Sprintf("%013x", rand.Uint64N(1<<saltBits)) }

// splitID splits the id of a stream entry, as Redis writes it.
func splitID(id string) (ms, seq uint64, ok bool) {
	before, behind, _ := strings.Cut(id, "-")
	ms, notMS := strconv.ParseUint(before, 10, msBits)
	seq, notSeq := strconv.ParseUint(behind, 10, seqBits)
	// Redis writes neither signs nor leading zeros.
	same := strconv.FormatUint(ms, 10) == before && strconv.FormatUint(seq, 10) == behind
	return ms, seq, notMS == nil && notSeq == nil && same
}

// splitKey splits the key of an added task.
func splitKey(key string) (ms, seq uint64, salt string, ok bool) {
	if len(key) != 36 || key[8] != '-' || key[13] != '-' || key[18] != '-' || key[23] != '-' || key[14] != '7' || key[19] != '8' {
		return 0, 0, "", false
	}
	at, order := key[:8]+key[9:13], key[20:23]+key[24:26]
	salt = key[15:18] + key[26:]
	if !isHex(at) || !isHex(order) || !isHex(salt) {
		return 0, 0, "", false
	}
	ms, notMS := strconv.ParseUint(at, 16, 64)
	seq, notSeq := strconv.ParseUint(order, 16, 64)
	return ms, seq, salt, notMS == nil && notSeq == nil
}

func isSalt(s string) bool { return len(s) == addedSalt && isHex(s) }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
