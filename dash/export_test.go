package dash

import "time"

func init() {
	lingering = 200 * time.Millisecond // otherwise each test binary would end that much later
	hookPatience = 3 * time.Second     // and those with hooks that block
}
