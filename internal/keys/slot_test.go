package keys_test

import (
	"testing"

	"github.com/worqr/worqr/internal/keys"
)

// The checksum is the one in the cluster specification (31C3 for 123456789), and so are the rules
// for braces. The numbers come from CLUSTER KEYSLOT.
func TestSlot(t *testing.T) {
	t.Parallel()
	if keys.Slot("123456789") != 0x31c3%keys.Slots {
		t.Error("this is another checksum")
	}
	for key, want := range map[string]int{
		"": 0, "a": 15495, "k{a}": 15495, "{a}{b}": 15495, "123456789": 12739, "foo": 12182, "{foo": 13308, "{}foo": 9500, "foo{{bar}}zap": 4015,
	} {
		if got := keys.Slot(key); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
	for _, same := range [][2]string{
		{"{user1000}.following", "{user1000}.followers"}, {"foo{{bar}}zap", "{bar"}, {"foo{bar}{zap}", "bar"},
	} {
		if keys.Slot(same[0]) != keys.Slot(same[1]) {
			t.Errorf("%q are in two slots", same)
		}
	}
	if keys.Slot("foo{}{bar}") == keys.Slot("bar") {
		t.Error("braces with nothing between them count")
	}
}

// Each queue has a key that nothing else uses, and which a producer's ACL rule allows.
func TestNone(t *testing.T) {
	t.Parallel()
	q := keys.NewSpace("worqr").Queue("q")
	for _, of := range []keys.Queue{q, q.Failed()} {
		key := keys.None(of)
		if keys.Slot(key) != keys.Slot("q") || key != of.Once("") {
			t.Error(key)
		}
		for _, row := range keys.Table {
			if row.Of(of, "x") == key || row.Of(of, "") == key && row.Part == "" {
				t.Errorf("%s is %s, too", key, row.Kind)
			}
		}
	}
}
