package keys

import (
	"fmt"
	"strings"
	"sync"
)

// A queue that is spread has parts: ordinary queues, whose names put each into its own slot, at
// equal distances. So the parts are spread evenly over a cluster with equal ranges of slots, and
// the parts of a queue with n parts are among those with 2n.
//
//	emails~8192~0k3q
//	whole  slot salt

// MaxParts is the most parts of a queue.
const MaxParts = 256

// MaxWhole is the longest name of a spread queue, in bytes.
const MaxWhole = MaxName - len("~16383~") - salts

// salts is the length of the salt in a name, in bytes.
const salts = 4

// saltDigits are the 32 digits of a salt.
const saltDigits = "0123456789abcdefghijklmnopqrstuv"

// parts caches names: whole and slot → name.
var parts sync.Map

type partID struct {
	whole string
	slot  int
}

// Part returns the name of part i of n.
func Part(whole string, i, n int) string {
	id := partID{whole, i * Slots / n}
	if name, ok := parts.Load(id); ok {
		return name.(string)
	}
	name := salted(fmt.Sprintf("%s~%d~", whole, id.slot), id.slot)
	parts.Store(id, name)
	return name
}

// salted appends the first salt that puts a name into a slot. Four digits have 20 bits and a slot
// has 14, so there always is one.
func salted(name string, slot int) string {
	before := sum(0, name)
	var salt [salts]byte
	for n := range 1 << (5 * salts) {
		for i := range salt {
			salt[i] = saltDigits[n>>(5*(salts-1-i))&31]
		}
		if int(sum(before, string(salt[:])))%Slots == slot {
			return name + string(salt[:])
		}
	}
	panic("keys: no salt leads to slot " + fmt.Sprint(slot))
}

// Whole returns the name of the queue that a part belongs to, or the name itself if it isn't a
// part's.
func Whole(name string) string {
	before, salt, ok := cutLast(name)
	if !ok || len(salt) != salts || strings.Trim(salt, saltDigits) != "" {
		return name
	}
	whole, slot, ok := cutLast(before)
	if !ok || whole == "" || slot == "" || len(slot) > 5 || strings.Trim(slot, "0123456789") != "" {
		return name
	}
	return whole
}

func cutLast(s string) (before, after string, found bool) {
	i := strings.LastIndexByte(s, '~')
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+1:], true
}
