package redisconn

import "errors"

// In a cluster, only the node that owns a sharded topic's slot sends the topic's messages. When the
// slot moves, the node ends the subscription, and Moved is called.

var errMoved = errors.New("the slot of a subscription has moved to another node")

// leaves reports whether a message means that the subscription of a sharded topic has ended.
func leaves(words [][]byte) bool { return len(words) == 3 && string(words[0]) == "sunsubscribe" }

// ended handles the end of a subscription. If it's the answer to the oldest request, no listener wanted the topic.
// The server may also have ended it on its own just before, and the answers that follow are then taken for those of
// other requests: that shows sooner or later, and the session ends.
func (s *Subscriber) ended(t Topic) error {
	s.mu.Lock()
	asked := len(s.asked) > 0 && s.asked[0].topic == t && s.asked[0].command == t.command("UNSUBSCRIBE")
	if asked {
		s.asked = s.asked[1:]
	}
	s.mu.Unlock()
	if asked {
		return nil
	}
	return s.moved(t, "")
}

// elsewhere handles the refusal of a sharded topic, and reports whether it did. If another node has
// the slot, it notifies the listeners. If there are no sharded topics, because the server is older
// or the user may not use them, the request counts as answered: nearly all listeners of a sharded topic also have a
// plain one.
func (s *Subscriber) elsewhere(r request, refusal error) bool {
	if !r.topic.Sharded || r.command != r.topic.command("SUBSCRIBE") {
		return false
	}
	if to, redirected := Redirected(refusal); redirected && !to.Ask {
		return s.moved(r.topic, to.Address) == nil
	}
	if UnknownCommand(refusal) || Denied(refusal) {
		s.settle(r, false)
		return true
	}
	return false
}

// moved notifies the listeners of a sharded topic that another node has it. It fails if one of them
// has no Moved function; then the session ends, and the next one subscribes to everything again.
func (s *Subscriber) moved(t Topic, to string) error {
	for _, l := range s.of(t) {
		if l.Moved == nil {
			return errMoved
		}
		l.Moved(t, to)
	}
	return nil
}

// command returns the variant of a command for a plain, a pattern or a sharded topic.
func (t Topic) command(name string) string {
	switch {
	case t.Pattern:
		return "P" + name
	case t.Sharded:
		return "S" + name
	}
	return name
}
