package redisconn_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// BenchmarkRounds compares rounds of two scripts with a payload each: in turn, and with one or two in flight for each
// queue.
func BenchmarkRounds(b *testing.B) {
	server := redistest.Start(b)
	b.Run("near", func(b *testing.B) { benchmarkRounds(b, server.URL()) })
	b.Run("2ms", func(b *testing.B) { benchmarkRounds(b, redistest.Far(b, server.Addr(), 2*time.Millisecond).URL()) })
}

func benchmarkRounds(b *testing.B, url string) {
	dial := redistest.Sure(redisconn.FromURL(url))(b)
	const source = "for i = 1, 50 do redis.call('SET', KEYS[1], ARGV[1]) end return ARGV[1]"
	script := redisconn.NewScript(func() string { return source })
	round := func(q int) []redisconn.Call {
		key := fmt.Sprint("k", q)
		one := script.Call([]string{key}, make([]byte, 1000))
		return []redisconn.Call{one, one}
	}
	check := func(replies []redisconn.Reply) {
		if v, err := redis.Bytes(replies[1].Value, replies[1].Err); err != nil || len(v) != 1000 {
			b.Error(len(v), err)
		}
	}
	for _, queues := range []int{1, 4} {
		b.Run(fmt.Sprintf("queues=%d/in turn", queues), func(b *testing.B) {
			l := redisconn.NewLine(dial, 0)
			defer l.Close()
			over := make(chan bool)
			for q := range queues {
				go func() {
					for i := q; i < b.N; i += queues {
						check(l.Do(b.Context(), round(q)...))
					}
					over <- true
				}()
			}
			for range queues {
				<-over
			}
		})
		for _, flight := range []int{1, 2} {
			b.Run(fmt.Sprintf("queues=%d/flight=%d", queues, flight), func(b *testing.B) {
				s := redisconn.NewLine(dial, 0)
				defer s.Close()
				over := make(chan bool)
				for q := range queues {
					answered := make(chan []redisconn.Reply, flight)
					go func() {
						sent, done := 0, 0
						for i := q; i < b.N; i += queues {
							if sent-done == flight {
								check(<-answered)
								done++
							}
							s.Send(round(q), nil, func(replies []redisconn.Reply) { answered <- replies })
							sent++
						}
						for ; done < sent; done++ {
							check(<-answered)
						}
						over <- true
					}()
				}
				for range queues {
					<-over
				}
			})
		}
	}
}
