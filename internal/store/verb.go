package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// A Verb is one script: what it does, how it is called, and what it returns. The table in verbs.go is
// the only place that defines the order of keys, arguments and replies: calls are built, replies are
// read and requests are parsed by name. TestHeaders compares it with the scripts' headers.
//
// Lists of names are separated by spaces. A last name that ends in "…" stands for any number
// of values. The name "shared" stands for the keys or arguments that lib_queue.lua names.
type Verb struct {
	Name  string // of its file, without .lua
	Does  string
	By    Role   // the role whose rule in docs/security.md it needs
	Keys  string // names in keys.Table; the caller gives those that aren't there, and those that take a part
	Args  string // the caller gives those that aren't in filled
	Reply string // one name is the value itself, several are an array; "": the reply isn't used
	Fails string // first words of refusals
	Tells string // kinds of channels it publishes on

	script            *redisconn.Script
	apart             *redisconn.Script // in a cluster
	keys, args, reply []string
	keyed             []*keys.Row               // by key; nil: the caller gives it
	filled            []func(keys.Queue) string // by argument; nil: the caller gives it
	given             []string                  // what a caller gives, in order
	fixed             int                       // arguments before those that repeat
}

// A Role is one of the roles in docs/security.md.
type Role string

// The roles: a producer adds payloads to the list; a worker may do everything else, too.
const (
	asProducer Role = "producer"
	asWorker   Role = "worker"
)

// The keys and arguments that lib_queue.lua names.
const (
	sharedKeys = "waiting workers idle suspects canceled rounds token schedule contents entries ledger paused holders stopping ages added"
	sharedArgs = "process working cancel wake keyed"
)

// filled has the arguments that depend on the queue alone: prefixes of keys and channels.
var filled = map[string]func(keys.Queue) string{
	"process": beginning("process"), "working": beginning("working"), "cancel": beginning("cancel"),
	"keyed": beginning("keyed"), "result": beginning("result"),
	"wake":    func(q keys.Queue) string { return q.Wake("") },
	"enqueue": func(q keys.Queue) string { return q.Channel(keys.KindEnqueue) },
	"done":    func(q keys.Queue) string { return q.Channel(keys.KindDone) },
	"channel": func(q keys.Queue) string { return q.Channel(keys.KindCancel) },
	"delete":  func(q keys.Queue) string { return q.Channel(keys.KindDelete) },
}

func beginning(name string) func(keys.Queue) string {
	row := keys.Named(name)
	return func(q keys.Queue) string { return row.Of(q, "") }
}

var table []*Verb

// Verbs returns all verbs. Don't modify them.
func Verbs() []*Verb { return table }

// verb adds a row to the table.
func verb(v Verb) *Verb {
	words := func(list, shared string) []string {
		return strings.Fields(strings.Replace(list, "shared", shared, 1))
	}
	v.script = redisconn.NewScript(v.Source)
	v.apart = redisconn.NewScript(func() string { return apart(v.Source()) })
	v.keys, v.args, v.reply = words(v.Keys, sharedKeys), words(v.Args, sharedArgs), strings.Fields(v.Reply)
	v.fixed = len(v.args)
	for i, k := range v.keys {
		row := keys.Named(k)
		if row == nil || row.Part != "" {
			v.keys[i] = strings.TrimSuffix(k, "…")
			v.given = append(v.given, v.keys[i])
		}
		v.keyed = append(v.keyed, row)
	}
	for i, a := range v.args {
		name, repeats := strings.CutSuffix(a, "…")
		if repeats {
			v.args[i], v.fixed = name, i
		}
		fill := filled[name]
		if fill == nil {
			v.given = append(v.given, name)
		}
		v.filled = append(v.filled, fill)
	}
	table = append(table, &v)
	return &v
}

// call returns the call of the verb on a queue. given alternates names and values, in the
// order of the table: the keys, or the parts of keys, that the caller must give, and then
// the arguments. An argument that repeats is one value: a []string or []any.
func (v *Verb) call(q keys.Queue, given ...any) redisconn.Call {
	return v.begun(q, v.line(q, nil, 0, given))
}

// own returns the keys and arguments of the verb that depend only on the queue, in the order of the
// table.
func (v *Verb) own(q keys.Queue) []any {
	all := make([]any, 0, len(v.keyed)+len(v.filled))
	for _, row := range v.keyed {
		if row != nil && row.Part == "" {
			all = append(all, row.Of(q, ""))
		}
	}
	for _, fill := range v.filled {
		if fill != nil {
			all = append(all, fill(q))
		}
	}
	return all
}

// begun turns the arguments that line has begun into a call.
func (v *Verb) begun(q keys.Queue, all []any) redisconn.Call { return v.text(q).CallOf(all) }

// text returns the script of the verb: the variant for a cluster if the queue is in one.
func (v *Verb) text(q keys.Queue) *redisconn.Script {
	if q.Scattered() {
		return v.apart
	}
	return v.script
}

// line returns the arguments of a call, with room for more. A caller that makes many calls on a
// queue passes what own returned; otherwise own is nil.
func (v *Verb) line(q keys.Queue, own []any, room int, given []any) []any {
	if len(given) != 2*len(v.given) {
		panic(fmt.Sprintf("%s takes %q", v.Name, v.given))
	}
	next := 0
	value := func() any { // the next of given
		if name := v.given[next]; given[2*next] != name {
			panic(fmt.Sprintf("%s takes %q, not %v, after %q", v.Name, name, given[2*next], v.given[:next]))
		}
		next++
		return given[2*next-1]
	}
	all := v.text(q).Begin(len(v.keys), len(v.args)+room)
	if own == nil {
		own = v.own(q)
	}
	same := func() any { // the next of own
		first := own[0]
		own = own[1:]
		return first
	}
	for _, row := range v.keyed {
		switch {
		case row == nil:
			all = with(all, value())
		case row.Part == "":
			all = append(all, same())
		default:
			all = append(all, row.Of(q, value().(string)))
		}
	}
	if absent, ok := q.Absent(); ok && v.ofQueue() {
		all = append(all, absent)
	}
	all[1] = len(all) - 2 // keys
	for _, fill := range v.filled {
		if fill != nil {
			all = append(all, same())
		} else {
			all = with(all, value())
		}
	}
	return all
}

// ofQueue reports whether the keys of the verb belong to one queue. A verb for the fleet has only
// one key, or may not be called in a cluster.
func (v *Verb) ofQueue() bool { return v.keyed[0] != nil && !v.keyed[0].Fleet }

// with appends a value, or each of several.
func with(all []any, value any) []any {
	switch value := value.(type) {
	case []any:
		return append(all, value...)
	case []string:
		for _, s := range value {
			all = append(all, s)
		}
		return all
	}
	return append(all, value)
}

// An answer is the reply of a verb, read by the names in the table. At the first unexpected element
// it sets err; from then on it yields zeros.
type answer struct {
	verb   *Verb
	single any   // the reply, if the verb returns one value
	values []any // the reply, if it returns several
	next   int
	err    error
}

// read decodes a reply. If the script refused, that is the error of the answer.
func (v *Verb) read(reply any, err error) answer {
	a := answer{verb: v, err: Refusal(err), single: reply}
	if a.err == nil && len(v.reply) > 1 {
		a.values, a.err = redis.Values(reply, nil)
	}
	return a
}

// value returns the value with that name. Values are mostly read in order.
func (a *answer) value(name string) any {
	i := a.next
	if i >= len(a.verb.reply) || a.verb.reply[i] != name {
		if i = slices.Index(a.verb.reply, name); i < 0 {
			panic(fmt.Sprintf("%s answers %q, and no %s", a.verb.Name, a.verb.reply, name))
		}
	}
	a.next = i + 1
	switch {
	case a.err != nil:
		return nil
	case len(a.verb.reply) == 1:
		return a.single
	case i >= len(a.values):
		a.err = errTooShort
		return nil
	}
	return a.values[i]
}

var errTooShort = errors.New("the reply is too short")

func (a *answer) int(name string) int64 { return as[int64](a.value(name), &a.err, name, "a number") }

func (a *answer) string(name string) string {
	return string(as[[]byte](a.value(name), &a.err, name, "a string"))
}

// list decodes an array; join returns its error to the answer.
func (a *answer) list(name string) *decoder {
	rest := as[[]any](a.value(name), &a.err, name, "an array")
	return &decoder{rest: rest, err: a.err}
}

// each decodes an array: f decodes one element at a time.
func (a *answer) each(name string, f func(d *decoder)) {
	d := a.list(name)
	d.each(func() { f(d) })
	a.join(d)
}

func (a *answer) join(d *decoder) {
	if a.err == nil {
		a.err = d.err
	}
}

// A Call is the decoded request of a verb.
type Call struct {
	Verb       *Verb
	Keys, Args []string
}

var (
	byName   = sync.OnceValue(func() map[string]*Verb { return index((*Verb).name) })
	byDigest = sync.OnceValue(func() map[string]*Verb { return index((*Verb).Digest, (*Verb).digestApart) })
)

func index(by ...func(*Verb) string) map[string]*Verb {
	all := map[string]*Verb{}
	for _, v := range table {
		for _, of := range by {
			all[of(v)] = v
		}
	}
	return all
}

func (v *Verb) name() string { return v.Name }

// Digest returns the SHA-1 of the script, by which Redis names it in its slow log.
func (v *Verb) Digest() string { return v.script.Digest() }

// digestApart returns the SHA-1 of the script for a cluster.
func (v *Verb) digestApart() string { return v.apart.Digest() }

// Source returns the script for a single server.
func (v *Verb) Source() string { return source(v.Name) }

// VerbOf returns nil if no verb has that name.
func VerbOf(name string) *Verb { return byName()[name] }

// NameOf returns the name of the verb whose script has that digest, and "" if there is none.
func NameOf(digest string) string {
	if v := byDigest()[digest]; v != nil {
		return v.Name
	}
	return ""
}

// Parse decodes a command: EVALSHA or EVAL, and its arguments. It returns false if the command
// doesn't call a verb.
func Parse(command []string) (c Call, ok bool) {
	if len(command) < 3 {
		return Call{}, false
	}
	digest := command[1]
	switch {
	case strings.EqualFold(command[0], "EVAL"):
		digest = redisconn.Digest(digest)
	case !strings.EqualFold(command[0], "EVALSHA"):
		return Call{}, false
	}
	n, err := strconv.Atoi(command[2])
	v := byDigest()[digest]
	if err != nil || n < 0 || n > len(command)-3 || v == nil {
		return Call{}, false
	}
	return Call{v, command[3 : 3+n], command[3+n:]}, true
}

// Key returns the key that has that name in verbs.go.
func (c Call) Key(name string) string { return valueOf(c.Verb, c.Verb.keys, c.Keys, name) }

// Arg returns the argument of that name in the table; "" if it was left out.
func (c Call) Arg(name string) string { return valueOf(c.Verb, c.Verb.args, c.Args, name) }

// Int returns an argument that is a number; 0 if it isn't one.
func (c Call) Int(name string) int64 { return numberIn(c.Arg(name)) }

// Rest returns the arguments that repeat: all after the others.
func (c Call) Rest() []string {
	if c.Verb.fixed >= len(c.Args) {
		return nil
	}
	return c.Args[c.Verb.fixed:]
}

// valueOf finds a value by its name. It panics if the verb has no such name.
func valueOf(v *Verb, names, values []string, name string) string {
	i := slices.Index(names, name)
	if i < 0 {
		panic(fmt.Sprintf("%s has %q, and no %s", v.Name, names, name))
	}
	if i >= len(values) {
		return ""
	}
	return values[i]
}
