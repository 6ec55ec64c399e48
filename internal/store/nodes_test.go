package store

import (
	"fmt"
	"testing"

	"github.com/matryer/is"
)

// openSlots returns only the slots that a node reports as moving, whatever else its report
// contains.
func TestOpenSlots(t *testing.T) {
	t.Parallel()
	const text = `aa 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-5460 5462 [7->-bb] [9000-<-cc] [x->-bb] [8-] [] [
bb 10.0.0.2:7000@17000,host master - 0 1 2 connected 5461 [8->-aa]
dd
`
	is := is.New(t)
	is.Equal(fmt.Sprint(openSlots(text)), fmt.Sprint([]OpenSlot{{7, false, "10.0.0.2:7000"}, {9000, true, ""}}))
	is.Equal(len(openSlots("")), 0)
}
