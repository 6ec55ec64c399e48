package simulation

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	redisserver "github.com/alicebob/miniredis/v2/server"
)

// A memory is a Redis in this process, miniredis. Its commands need no connection, and run one after the other.
type memory struct {
	*miniredis.Miniredis
	desk *redisserver.Peer // runs the commands
	out  bytes.Buffer
}

// newMemory returns one that doesn't listen.
func newMemory() *memory {
	m := &memory{Miniredis: miniredis.NewMiniRedis()}
	conn, err := m.Dial() // starts it without a listener
	if err != nil {
		panic(err) // miniredis has a command twice
	}
	_ = conn.Close() // nothing was sent
	m.desk = redisserver.NewPeer(bufio.NewWriter(&m.out))
	return m
}

// Do runs a command. A refusal is an error reply.
func (m *memory) Do(command ...string) any {
	m.out.Reset()
	m.Server().Dispatch(m.desk, command)
	m.desk.Flush()
	reply, _, err := readReply(m.out.Bytes())
	if err != nil {
		panic(fmt.Sprintf("miniredis answered %q to %q", m.out.String(), command))
	}
	return reply
}

// Get returns a copy of the value of a key, as a value for a lane, but with float scores.
func (m *memory) Get(key string) any {
	// No error is possible below: the key exists, and has this type.
	switch m.Type(key) {
	case "string":
		v, _ := m.Miniredis.Get(key)
		return v
	case "list":
		v, _ := m.List(key)
		return slices.Clone(v)
	case "hash":
		fields, _ := m.HKeys(key)
		all := make(map[string]string, len(fields))
		for _, f := range fields {
			all[f] = m.HGet(key, f)
		}
		return all
	case "zset":
		v, _ := m.SortedSet(key)
		return maps.Clone(v)
	case "set":
		members, _ := m.Members(key)
		all := make(map[string]bool, len(members))
		for _, name := range members {
			all[name] = true
		}
		return all
	}
	return nil
}

// Set sets a key that doesn't exist to a value in the types of Get. It expires after ttl if that isn't 0.
func (m *memory) Set(key string, v any, ttl time.Duration) {
	switch v := v.(type) { // no error is possible, since the key doesn't exist
	case string:
		_ = m.Miniredis.Set(key, v)
	case []string:
		_, _ = m.Push(key, v...)
	case map[string]string:
		for name, f := range v {
			m.HSet(key, name, f)
		}
	case map[string]float64:
		for name, score := range v {
			_, _ = m.ZAdd(key, score, name)
		}
	case map[string]bool:
		_, _ = m.SAdd(key, slices.Collect(maps.Keys(v))...)
	}
	if ttl > 0 {
		m.SetTTL(key, ttl)
	}
}
