package redisconn_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/worqr/worqr/internal/redisconn"
	"github.com/worqr/worqr/internal/redistest"
)

// saysOf maps the requests of a subscriber, with one argument or none, to a server's answers; if one is empty, the
// server hangs up. Other requests are confirmed.
type saysOf map[string]string

// serve answers requests until the connection ends.
func (says saysOf) serve(c net.Conn) {
	for words := range redistest.Requests(c) {
		said, given := says[words[0]]
		switch {
		case given && said == "":
			return
		case given:
		case words[0] == "PING":
			said = "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
		default:
			said = confirms(strings.ToLower(words[0]), words[1])
		}
		if _, err := fmt.Fprint(c, said); err != nil {
			return
		}
	}
}

func confirms(what, topic string) string {
	return fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(what), what, len(topic), topic)
}

// A slot moves while its sharded topic is unsubscribed: the node ends the subscription, and then
// refuses to. Whatever the order, later listeners are subscribed, if need be on a new connection.
func TestShardedTopicMovesAsItIsLeft(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]saysOf{
		"it ends as asked":                 {},
		"it has ended, and moved":          {"SUNSUBSCRIBE": confirms("sunsubscribe", "a") + "-MOVED 1 127.0.0.1:1\r\n"},
		"it has ended, and moved nowhere":  {"SUNSUBSCRIBE": confirms("sunsubscribe", "a") + "-CLUSTERDOWN Hash slot not served\r\n"},
		"it has ended, and moved back":     {"SUNSUBSCRIBE": strings.Repeat(confirms("sunsubscribe", "a"), 2)},
		"it has moved":                     {"SUNSUBSCRIBE": "-MOVED 1 127.0.0.1:1\r\n"},
		"another one ends":                 {"SUNSUBSCRIBE": confirms("sunsubscribe", "z") + confirms("sunsubscribe", "a")},
		"it may not be given up":           {"SUNSUBSCRIBE": "-NOPERM SUNSUBSCRIBE\r\n"},
		"it has ended, and no PING may be": {"SUNSUBSCRIBE": confirms("sunsubscribe", "a"), "PING": "-NOPERM PING\r\n"},
		"nothing may be":                   {"SUNSUBSCRIBE": "-NOPERM SUNSUBSCRIBE\r\n", "PING": "-NOPERM PING\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			is := redistest.Parallel(t)
			door := redistest.Listen(t, says.serve)
			s := subscriber(t, door.URL(), t.Output())
			stays, told := hears(redisconn.Topic{Name: "b"})
			is.NoErr(s.Add(stays))
			next(t, told, "synced")
			leaves, toldToo := hears(redisconn.Topic{Name: "a", Sharded: true}, redisconn.Topic{Name: "a"})
			is.NoErr(s.Add(leaves))
			next(t, toldToo, "synced")
			s.Remove(leaves)
			for range 3 { // the first answers belong to the previous request
				l, toldToo := hears(redisconn.Topic{Name: "c"})
				is.NoErr(s.Add(l))
				for said := "failed"; said != "synced"; said = <-toldToo {
					is.Equal(said, "failed")
				}
				s.Remove(l)
			}
		})
	}
}
