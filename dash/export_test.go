package dash

import "time"

func init() {
	lingering = 200 * time.Millisecond // otherwise each test binary would take longer to end
	hookPatience = 3 * time.Second     // otherwise tests with blocking hooks would be slow
}
