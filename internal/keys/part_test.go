package keys_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/keys"
)

// Each part is in the slot that its name contains, for any queue name.
func TestPartsAreInTheirSlots(t *testing.T) {
	t.Parallel()
	for _, whole := range []string{"emails", "q", "a~b~c", strings.Repeat("x", keys.MaxWhole), "ü"} {
		for _, n := range []int{1, 2, 3, 7, 100, keys.MaxParts} {
			seen := map[string]bool{}
			for i := range n {
				name := keys.Part(whole, i, n)
				slot := keys.Slot(keys.NewSpace("p").Queue(name).Waiting())
				if want := i * keys.Slots / n; slot != want || !strings.HasPrefix(name, fmt.Sprintf("%s~%d~", whole, slot)) {
					t.Fatalf("part %d of %d is %q in slot %d, and should be in %d", i, n, name, slot, want)
				}
				if err := keys.CheckName(name); err != nil || seen[name] || keys.Whole(name) != whole {
					t.Fatalf("%q: %v; seen %v; of %q", name, err, seen[name], keys.Whole(name))
				}
				seen[name] = true
			}
		}
	}
}

// The names are part of the protocol: producers in other languages create them, too.
func TestPartNames(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"emails~0~02cu", "emails~5461~0025", "emails~10922~0rq5"} {
		if name := keys.Part("emails", i, 3); name != want {
			t.Errorf("part %d of 3 is %s, want %s", i, name, want)
		}
	}
	for name, whole := range map[string]string{
		"emails": "emails", "emails~1~000": "emails~1~000", "emails~1~000w": "emails~1~000w", "emails~x~0000": "emails~x~0000",
		"~1~0000": "~1~0000", "emails~~0000": "emails~~0000", "emails~1~0000": "emails", "a~1~0000~2~1111": "a~1~0000",
		"emails~123456~0000": "emails~123456~0000", "": "", "~": "~", "~~": "~~",
	} {
		if got := keys.Whole(name); got != whole {
			t.Errorf("%q is of %q, want %q", name, got, whole)
		}
	}
}
