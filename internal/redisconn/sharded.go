package redisconn

import "errors"

// In a cluster, only the node that owns a sharded topic's slot sends the topic's messages. When the
// slot moves, the node ends the subscription, and Moved is called.

var errMoved = errors.New("the slot of a subscription has moved to another node")

// ended reports whether a message or a refusal answers the SUNSUBSCRIBE that is the oldest request.
// The answer looks like the message by which a server ends the subscription on its own, and both may
// come. Therefore a PING follows each SUNSUBSCRIBE: its answer shows that no more will come. No other
// code sends a PING at this point.
func (f *feed) ended(words [][]byte, refusal error) bool {
	f.sub.mu.Lock()
	defer f.sub.mu.Unlock()
	if len(f.asked) == 0 || !f.asked[0].ends() {
		return false
	}
	r := &f.asked[0]
	switch {
	case !leaves(words):
		told := r.left
		f.asked = f.asked[1:]
		return refusal != nil && !(told && Denied(refusal)) // of the PING, perhaps
	case string(words[1]) == r.topic.Name:
		r.left = true
		return true
	}
	return false
}

// leaves reports whether a message means that the subscription of a sharded topic has ended.
func leaves(words [][]byte) bool { return len(words) == 3 && string(words[0]) == "sunsubscribe" }

// ends reports whether a request ends the subscription of a sharded topic.
func (r *request) ends() bool {
	return r.topic.Sharded && r.command == r.topic.command("UNSUBSCRIBE")
}

// elsewhere handles the refusal of a sharded topic, and reports whether it did. If another node has
// the slot, it notifies the listeners. If there are no sharded topics, because the server is older
// or the user may not use them, it notifies no one: a listener of a sharded topic also has a plain
// topic.
func (f *feed) elsewhere(r request, refusal error) bool {
	if !r.topic.Sharded || r.command != r.topic.command("SUBSCRIBE") {
		return false
	}
	if to, redirected := Redirected(refusal); redirected && !to.Ask {
		return f.moved(r.topic, to.Address) == nil
	}
	if UnknownCommand(refusal) || Denied(refusal) {
		f.settle(r, false)
		return true
	}
	return false
}

// moved notifies the listeners of a sharded topic that another node has it. It fails if one of them
// has no Moved function; then the session ends, and the next one subscribes to everything again.
func (f *feed) moved(t Topic, to string) error {
	for _, l := range f.of(t) {
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
