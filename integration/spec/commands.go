package spec

import (
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Do carries out one of the few plain commands that the tables, the judges and the
// history of a server use. A Refusal is an error reply.
func (k *Store) Do(command ...string) any {
	return refusing(func() any { return k.do(strings.ToUpper(command[0]), command[1:]) })
}

// refusing is what f answers, or the Refusal with which it ends halfway.
func refusing(f func() any) (reply any) {
	defer func() {
		if r := recover(); r != nil {
			refused, ok := r.(Refusal)
			if !ok {
				panic(r)
			}
			reply = refused
		}
	}()
	return f()
}

func (k *Store) do(name string, args []string) any {
	switch name {
	case "PING":
		return Status("PONG")
	case "TIME":
		us := k.now().UnixMicro()
		return []any{text(us / 1e6), text(us % 1e6)}
	case "PUBLISH":
		return k.publish(args[0], args[1])
	case "SCAN":
		var all []any
		for _, key := range k.Keys() {
			if ok, _ := path.Match(args[2], key); ok || strings.HasPrefix(key, strings.TrimSuffix(args[2], "*")) {
				all = append(all, key)
			}
		}
		return []any{"0", append([]any{}, all...)}
	case "EXISTS":
		n := 0
		for _, key := range args {
			n += bit(k.exists(key))
		}
		return n
	case "DEL", "UNLINK":
		n := 0
		for _, key := range args {
			n += bit(k.exists(key))
			k.del(key)
		}
		return n
	}
	return k.onKey(name, args[0], args[1:])
}

// onKey carries out a command on one key.
func (k *Store) onKey(name, key string, args []string) any {
	switch name {
	case "TYPE":
		if v := k.at(key, ""); v != nil {
			return Status(v.kind)
		}
		return Status("none")
	case "PTTL":
		switch v := k.at(key, ""); {
		case v == nil:
			return -2
		case v.expires.IsZero():
			return -1
		default:
			return v.expires.Sub(k.now()).Milliseconds()
		}
	case "PEXPIRE":
		k.expire(key, number(args[0]))
		return bit(k.exists(key))
	case "PEXPIREAT":
		if v := k.at(key, ""); v != nil {
			v.expires = time.UnixMilli(number(args[0]))
		}
		return 1
	case "PERSIST":
		return bit(k.persist(key))
	case "SET":
		if k.put(key, args[0]); len(args) == 3 && strings.EqualFold(args[1], "PXAT") {
			k.at(key, "").expires = time.UnixMilli(number(args[2]))
		} else if len(args) > 1 {
			return Refusal("ERR the specification does not know these options")
		}
		return Status("OK")
	case "GET":
		if v, ok := k.get(key); ok {
			return v
		}
		return nil
	case "GETRANGE": // from the start
		v, _ := k.get(key)
		return v[:min(len(v), int(number(args[1]))+1)]
	}
	return k.onList(name, key, args)
}

// onList carries out the commands of lists; what is none, those of other types.
func (k *Store) onList(name, key string, args []string) any {
	switch name {
	case "LPUSH":
		k.push(key, args...)
		return k.length(key)
	case "RPUSH":
		for _, a := range args {
			k.pushFront(key, a)
		}
		return k.length(key)
	case "RPOP":
		if v, ok := k.popFront(key); ok {
			return v
		}
		return nil
	case "RPOPLPUSH", "LMOVE":
		if name == "LMOVE" && args[1] != "RIGHT" {
			return Refusal("ERR the specification does not know this end")
		}
		item, ok := k.popFront(key)
		switch {
		case !ok:
			return Refusal("ERR the list is empty")
		case name == "LMOVE" && args[2] == "RIGHT":
			k.pushFront(args[0], item)
		default:
			k.push(args[0], item)
		}
		return item
	case "LPOP":
		items := k.items(key)
		if len(items) == 0 {
			return nil
		}
		k.change(key, "list", func(v *value) { v.list = v.list[:len(v.list)-1] })
		return items[len(items)-1]
	case "LREM":
		most, _ := integer(args[0])
		return k.removeItems(key, args[1], most)
	case "LLEN":
		return k.length(key)
	case "LTRIM": // from the back, which is the head in Redis
		from, to := int(number(args[0])), int(number(args[1]))
		k.change(key, "list", func(v *value) {
			n := len(v.list)
			v.list = slices.Clone(v.list[max(n-1-to, 0):max(n-from, 0)])
		})
		return Status("OK")
	case "LRANGE":
		return words(slices.Backward(k.items(key)))
	}
	return k.onHash(name, key, args)
}

// onHash is the same for hashes.
func (k *Store) onHash(name, key string, args []string) any {
	switch name {
	case "HSET":
		n := 0
		for i := 0; i < len(args); i += 2 {
			if _, ok := k.field(key, args[i]); !ok {
				n++
			}
			k.set(key, args[i], args[i+1])
		}
		return n
	case "HSETNX":
		if _, ok := k.field(key, args[0]); ok {
			return 0
		}
		k.set(key, args[0], args[1])
		return 1
	case "HINCRBY":
		was, _ := k.field(key, args[0])
		n, _ := strconv.ParseInt(was, 10, 64) // nothing is 0
		by, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return Refusal("ERR value is not an integer or out of range")
		}
		k.set(key, args[0], n+by)
		return int(n + by)
	case "HGET":
		if f, ok := k.field(key, args[0]); ok {
			return f
		}
		return nil
	case "HSTRLEN":
		f, _ := k.field(key, args[0])
		return len(f)
	case "HMGET":
		all := make([]any, len(args))
		for i, name := range args {
			if f, ok := k.field(key, name); ok {
				all[i] = f
			}
		}
		return all
	case "HEXISTS":
		_, ok := k.field(key, args[0])
		return bit(ok)
	case "HDEL":
		return k.unset(key, args...)
	case "HLEN":
		return k.fields(key)
	case "HGETALL":
		all := []any{}
		if v := k.at(key, "hash"); v != nil {
			for name, f := range v.hash {
				all = append(all, name, f)
			}
		}
		return all
	}
	return k.onZSet(name, key, args)
}

func (k *Store) zadd(key string, args []string) any {
	n, flags := k.size(key), map[string]bool{}
	for len(args) > 0 && slices.Contains([]string{"NX", "XX", "GT", "INCR"}, args[0]) {
		flags[args[0]], args = true, args[1:]
	}
	for i := 0; i+1 < len(args); i += 2 {
		f, err := strconv.ParseFloat(args[i], 64)
		if err != nil {
			return Refusal("ERR value is not a valid float")
		}
		was, there := k.score(key, args[i+1])
		if flags["INCR"] {
			f += was
		}
		if flags["NX"] && there || flags["XX"] && !there || flags["GT"] && there && f <= was {
			continue
		}
		k.make(key, "zset").zset[args[i+1]] = f
		if flags["INCR"] {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
	}
	if flags["INCR"] {
		return nil
	}
	return k.size(key) - n
}

// onZSet is the same for sorted sets.
func (k *Store) onZSet(name, key string, args []string) any {
	switch name {
	case "ZADD":
		return k.zadd(key, args)
	case "ZPOPMIN", "ZPOPMAX":
		all := k.all(key)
		if len(all) == 0 {
			return []any{}
		}
		one := all[0]
		if name == "ZPOPMAX" {
			one = all[len(all)-1]
		}
		k.remove(key, one.name)
		return []any{one.name, strconv.FormatFloat(one.score, 'f', -1, 64)}
	case "ZREM":
		n := k.size(key)
		k.remove(key, args...)
		return n - k.size(key)
	case "ZCARD":
		return k.size(key)
	case "ZCOUNT":
		return len(k.between(key, limit(args[0], inf), limit(args[1], -inf)))
	case "ZSCORE":
		if f, ok := k.score(key, args[0]); ok {
			return strconv.FormatFloat(f, 'f', -1, 64)
		}
		return nil
	case "ZSCAN": // all of it
		return []any{"0", k.onZSet("ZRANGE", key, nil)}
	case "ZRANGEBYSCORE":
		return k.byScore(key, args)
	case "ZRANGEBYLEX":
		return k.byName(key, args)
	case "ZRANGE":
		all, rows := []any{}, k.all(key)
		if len(args) > 0 && args[0] == "-1" { // the last one
			rows = rows[max(len(rows)-1, 0):]
		}
		for _, r := range rows {
			all = append(all, r.name, strconv.FormatFloat(r.score, 'f', -1, 64))
		}
		return all
	}
	return k.onSet(name, key, args)
}

// limit is a score that bounds others; behind a bracket, the next one in a direction.
func limit(word string, towards float64) float64 {
	score, excluded := strings.CutPrefix(word, "(")
	f, _ := strconv.ParseFloat(score, 64)
	if excluded {
		f = math.Nextafter(f, towards)
	}
	return f
}

// byScore is the first member between two scores, with its own if that's asked for.
func (k *Store) byScore(key string, args []string) any {
	found := k.between(key, limit(args[0], inf), limit(args[1], -inf))
	switch {
	case len(found) == 0:
		return []any{}
	case len(args) > 2 && args[2] == "WITHSCORES":
		return []any{found[0].name, strconv.FormatFloat(found[0].score, 'f', -1, 64)}
	}
	return []any{found[0].name}
}

// byName are the members between two, each with [ or ( in front, of a page.
func (k *Store) byName(key string, args []string) any {
	all, skip, most := []any{}, 0, math.MaxInt
	if len(args) == 5 {
		skip, most = int(number(args[3])), int(number(args[4]))
	}
	for _, r := range k.all(key) {
		from, to := strings.Compare(r.name, args[0][1:]), strings.Compare(r.name, args[1][1:])
		if from < 0 || to > 0 || from == 0 && args[0][0] == '(' || to == 0 && args[1][0] == '(' {
			continue
		}
		if skip--; skip < 0 && len(all) < most {
			all = append(all, r.name)
		}
	}
	return all
}

// onSet is the same for sets.
func (k *Store) onSet(name, key string, args []string) any {
	switch name {
	case "SADD":
		for _, a := range args {
			k.make(key, "set").set[a] = true
		}
		return len(args)
	case "SREM":
		n := 0
		for _, a := range args {
			n += bit(k.strike(key, a))
		}
		return n
	case "SISMEMBER":
		v := k.at(key, "set")
		return bit(v != nil && v.set[args[0]])
	case "SMEMBERS":
		all := []any{}
		if v := k.at(key, "set"); v != nil {
			for _, m := range slices.Sorted(maps.Keys(v.set)) {
				all = append(all, m)
			}
		}
		return all
	case "SSCAN": // all of it
		return []any{"0", k.onSet("SMEMBERS", key, nil)}
	}
	return k.onStream(name, key, args)
}

// removeItems removes some of the equal items of a list, or all (0), and counts them: from
// its tail in Redis, which is the front, if there are fewer than none.
func (k *Store) removeItems(key, equal string, most int64) int {
	n := k.length(key)
	k.change(key, "list", func(v *value) {
		left := slices.Clone(v.list)
		if most >= 0 {
			slices.Reverse(left)
		}
		removed := int64(0)
		left = slices.DeleteFunc(left, func(item string) bool {
			goes := item == equal && (most == 0 || removed < max(most, -most))
			removed += int64(bit(goes))
			return goes
		})
		if most >= 0 {
			slices.Reverse(left)
		}
		v.list = left
	})
	return n - k.length(key)
}

func words(items func(func(int, string) bool)) []any {
	all := []any{}
	for _, item := range items {
		all = append(all, item)
	}
	return all
}
