package spec

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

// Load takes in what a Redis, or something like it, holds under a prefix.
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
	held, err := ask(c, commands)
	if err != nil {
		return err
	}
	s.keys = map[string]*value{}
	for i, key := range names {
		kind, _ := redis.String(about[2*i], nil)
		if kind == "stream" {
			s.Set(key, rowsOf(Reply(held[i], nil)))
		} else if !s.fill(key, kind, held[i]) {
			continue // it has just expired
		}
		s.fill(key, kind, words)
		if ttl, _ := redis.Int64(about[2*i+1], nil); ttl >= 0 {
			s.expire(key, ttl)
		}
	}
	return nil
}

// reads is how each kind of value is read.
var reads = map[string][]any{
	"none": {"EXISTS"}, "string": {"GET"}, "list": {"LRANGE", 0, -1}, "hash": {"HGETALL"}, "zset": {"ZRANGE", 0, -1, "WITHSCORES"}, "set": {"SMEMBERS"},
	"stream": {"XRANGE", "-", "+"},
}

// fill has a key hold what was read of it, if anything was.
func (s *Store) fill(key, kind string, held any) bool {
	words, err := redis.Strings(held, nil)
	if text, isText := held.([]byte); isText {
		words, err = []string{string(text)}, nil
	}
	if err != nil || kind == "none" {
		return false
	}
	v := s.make(key, kind)
	switch kind {
	case "string":
		v.text = words[0]
	case "list":
		slices.Reverse(words)
		v.list = words
	case "hash":
		for pair := range slices.Chunk(words, 2) {
			v.hash[pair[0]] = pair[1]
		}
	case "zset":
		for pair := range slices.Chunk(words, 2) {
			v.zset[pair[0]], _ = strconv.ParseFloat(pair[1], 64)
		}
	case "set":
		for _, w := range words {
			v.set[w] = true
		}
	}
	return true
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

// ask sends commands in one exchange.
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
