package next_test

import "testing"

func TestPlain(t *testing.T) {
	play(t, []scenario{
		{"plain tasks start in the order of the list, and end", [][2]string{
			{"join round=0", "1"},
			{"LPUSH queues a b c", "3"},
			{"start wanted=2", "1 [a b] 2 0 1 -1 now"},
			{"finish plain=2 w.1.9.1 1 w.1.9.2 2", "[] 0 0"},
			{"EXISTS working:w", "0"},
			{"EXISTS process:w.1.9.1", "0"},
		}},
		{"who is no member starts nothing", [][2]string{
			{"LPUSH queues a", "1"},
			{"start wanted=1", "!EVICTED"},
			{"finish plain=0", "!EVICTED"},
		}},
	})
}
