package spec

import (
	"fmt"
	"slices"

	"github.com/gomodule/redigo/redis"
)

// Load copies what a Redis, or a similar server, holds under a prefix.
func (s *Store) Load(c redis.Conn, prefix string) error {
	names, err := scan(c, prefix)
	if err != nil {
		return err
	}
	commands := make([][]any, 0, 2*len(names))
	for _, key := range names {
		commands = append(commands, []any{"TYPE", key}, []any{"PTTL", key})
	}
	about, err := ask(c, commands)
	if err != nil {
		return err
	}
	commands = commands[:0]
	for i, key := range names {
		kind, _ := redis.String(about[2*i], nil)
		read, there := reads[kind]
		if !there {
			return fmt.Errorf("%s is a %s", key, kind)
		}
		commands = append(commands, append([]any{read[0], key}, read[1:]...))
	}
	replies, err := ask(c, commands)
	if err != nil {
		return err
	}
	s.keys = map[string]*value{}
	for i, key := range names {
		kind, _ := redis.String(about[2*i], nil)
		v, err := readAs(kind, replies[i])
		if v == nil || err != nil {
			continue // it has just expired
		}
		s.Set(key, v)
		if ttl, _ := redis.Int64(about[2*i+1], nil); ttl >= 0 {
			s.expire(key, ttl)
		}
	}
	return nil
}

// reads are the commands that read each kind of value.
var reads = map[string][]any{
	"none": {"EXISTS"}, "string": {"GET"}, "list": {"LRANGE", 0, -1}, "hash": {"HGETALL"}, "zset": {"ZRANGE", 0, -1, "WITHSCORES"}, "set": {"SMEMBERS"},
	"stream": {"XRANGE", "-", "+"},
}

// readAs converts the replies for a key of some kind to a value like those of Get; nil if the key is gone.
func readAs(kind string, reply any) (any, error) {
	all, _ := reply.([]any)
	switch {
	case kind == "string" && reply != nil:
		return redis.String(reply, nil)
	case len(all) == 0 && kind != "stream":
		return nil, nil
	case kind == "list":
		return redis.Strings(all, nil)
	case kind == "hash":
		return redis.StringMap(all, nil)
	case kind == "zset":
		return redis.Float64Map(all, nil)
	case kind == "set":
		members, err := redis.Strings(all, nil)
		set := make(map[string]bool, len(members))
		for _, m := range members {
			set[m] = true
		}
		return set, err
	}
	rows := make([][]string, len(all)) // of a stream
	for i, v := range all {
		one := v.([]any)
		pairs, err := redis.Strings(one[1], nil)
		if err != nil {
			return nil, err
		}
		rows[i] = append([]string{string(one[0].([]byte))}, pairs...)
	}
	return rows, nil
}

func scan(c redis.Conn, prefix string) (all []string, err error) {
	for cursor := "0"; ; {
		var page []string
		reply, err := redis.Values(c.Do("SCAN", cursor, "MATCH", prefix+":*", "COUNT", 10_000))
		if err == nil {
			_, err = redis.Scan(reply, &cursor, &page)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if cursor == "0" {
			slices.Sort(all)
			return slices.Compact(all), nil
		}
	}
}

// ask sends commands in one round trip.
func ask(c redis.Conn, commands [][]any) (replies []any, err error) {
	for _, command := range commands {
		if err := c.Send(command[0].(string), command[1:]...); err != nil {
			return nil, err
		}
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	for range commands {
		reply, err := c.Receive()
		if err != nil {
			return nil, err
		}
		replies = append(replies, reply)
	}
	return replies, nil
}
