package next_test

import "testing"

func TestEnqueue(t *testing.T) {
	play(t, []scenario{
		{"payloads wait in order, and idle workers are woken", [][2]string{
			{"listen", ""},
			{"ZADD idle 1 v 2 w", "2"},
			{"enqueue a b c", "2"},
			{"LRANGE queues 0 -1", "c b a"},
			{"heard", "wake:v 3 wake:w 3 enqueue 3"},
			{"enqueue d", "1"},
			{"heard", "enqueue 1"},
		}},
		{"a repeat changes nothing while its nonce is known", [][2]string{
			{"enqueue nonce=n window=60000 a", "2"},
			{"enqueue nonce=n window=60000 a", "0"},
			{"LLEN queues", "1"},
			{"DEL once:n", "1"},
			{"enqueue nonce=n window=60000 a", "1"},
			{"LLEN queues", "2"},
		}},
		{"nobody is woken in a pause", [][2]string{
			{"ZADD idle 1 v", "1"},
			{"HSET state paused me", "1"},
			{"enqueue a", "2"},
			{"ZCARD idle", "1"},
		}},
		{"a key of the wrong type: nothing is added, and the nonce isn't known", [][2]string{
			{"SET queues x", "OK"},
			{"enqueue nonce=n window=60000 a", "!WRONGTYPE"},
			{"EXISTS once:n", "0"},
		}},
	})
}
