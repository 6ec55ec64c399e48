package crash

import (
	"bytes"
	"fmt"
	"os"
)

// stopped reports whether a process stands still.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// pid (name) state: the name may be anything
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte{' '})
	return bytes.HasPrefix(state, []byte("T"))
}
