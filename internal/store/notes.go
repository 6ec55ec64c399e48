package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/keys"
	"github.com/worqr/worqr/internal/redisconn"
)

// Limits of the fleet's notes.
const (
	MostSilences  = 100
	mostHappened  = 100
	noteBytes     = 4096
	mostNotes     = 1000 // in the hash; more were written by something else
	notesRemember = 24 * time.Hour
	notesStay     = 31 * 24 * time.Hour // longer than any silence
)

// ErrSilences says that there are too many silences.
var ErrSilences = errors.New("too many silences; end some first")

// Notes are what people should know about a fleet. Nothing else depends on them.
type Notes struct {
	Now      time.Time // by Redis's clock
	Silences []inspect.Silence
	Happened []inspect.Happening

	ended []string // fields of those that have ended
}

// The fields of the hash: a letter, and what the note is about.
func silenceField(kind inspect.FindingKind, queue string) string {
	return "s " + string(kind) + " " + queue
}

func happenedField(h *inspect.Happening) string {
	return "h " + string(h.Kind) + " " + h.Queue + " " + h.Subject
}

// ReadNotes reads the notes that haven't ended, the latest first. It leaves out those that are damaged.
func ReadNotes(ctx context.Context, r Runner, s keys.Space) (n Notes, err error) {
	now, err := Now(ctx, r)
	if err != nil {
		return n, err
	}
	n.Now = time.UnixMilli(now)
	size, err := redis.Int(r.One(ctx, redisconn.Command("HLEN", s.Notes())))
	if err == nil && size == 0 {
		return n, nil
	}
	if err == nil && size > mostNotes {
		err = fmt.Errorf("%s has %d fields, more than worqr writes; delete it", s.Notes(), size)
	}
	if err != nil {
		return n, err
	}
	fields, err := redis.Strings(r.One(ctx, redisconn.Command("HKEYS", s.Notes())))
	for some := range slices.Chunk(fields[:min(len(fields), mostNotes)], perPage) {
		sizes := doEach(ctx, r, some, func(field string) redisconn.Call { return redisconn.Command("HSTRLEN", s.Notes(), field) })
		var short []string
		for i, reply := range sizes {
			if size := readAs(reply, redis.Int, &err); size <= noteBytes {
				short = append(short, some[i])
			}
		}
		if err != nil || len(short) == 0 {
			continue
		}
		texts := readAs(r.Do(ctx, redisconn.Command("HMGET", redis.Args{s.Notes()}.AddFlat(short)...))[0], redis.Strings, &err)
		for i := range min(len(texts), len(short)) {
			n.read(short[i], texts[i])
		}
	}
	slices.SortFunc(n.Silences, func(a, b inspect.Silence) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Queue, b.Queue))
	})
	slices.SortFunc(n.Happened, func(a, b inspect.Happening) int { return b.At.Compare(a.At) })
	return n, err
}

func (n *Notes) read(field, text string) {
	until := time.Time{}
	switch field[:min(len(field), 2)] {
	case "s ":
		var s inspect.Silence
		if json.Unmarshal([]byte(text), &s) == nil && field == silenceField(s.Kind, s.Queue) && s.Until.After(n.Now) {
			n.Silences, until = append(n.Silences, s), s.Until
		}
	case "h ":
		var h inspect.Happening
		if json.Unmarshal([]byte(text), &h) == nil && field == happenedField(&h) && h.At.Add(notesRemember).After(n.Now) {
			n.Happened, until = append(n.Happened, h), h.At.Add(notesRemember)
		}
	}
	if until.IsZero() {
		n.ended = append(n.ended, field)
	}
}

// Silence notes a silence, which replaces one for the same findings.
func Silence(ctx context.Context, r Runner, s keys.Space, silence inspect.Silence) error {
	n, err := ReadNotes(ctx, r, s)
	if err != nil {
		return err
	}
	same := func(o inspect.Silence) bool { return o.Kind == silence.Kind && o.Queue == silence.Queue }
	if len(n.Silences) >= MostSilences && !slices.ContainsFunc(n.Silences, same) {
		return ErrSilences
	}
	silence.Since = n.Now
	return n.write(ctx, r, s, map[string]any{silenceField(silence.Kind, silence.Queue): silence})
}

// Unsilence ends a silence. It reports whether there was one.
func Unsilence(ctx context.Context, r Runner, s keys.Space, kind inspect.FindingKind, queue string) (bool, error) {
	return redis.Bool(r.One(ctx, redisconn.Command("HDEL", s.Notes(), silenceField(kind, queue))))
}

// Happen notes what has happened, as of now, and removes the notes of what is over.
func Happen(ctx context.Context, r Runner, s keys.Space, all, over []inspect.Happening) error {
	n, err := ReadNotes(ctx, r, s)
	if err != nil {
		return err
	}
	fields := map[string]any{}
	for _, h := range all {
		h.At = n.Now
		fields[happenedField(&h)] = h
	}
	for i, h := range n.Happened {
		if i >= mostHappened-len(all) || slices.Contains(over, inspect.Happening{Kind: h.Kind, Queue: h.Queue, Subject: h.Subject}) { // the oldest
			n.ended = append(n.ended, happenedField(&h))
		}
	}
	return n.write(ctx, r, s, fields)
}

func (n *Notes) write(ctx context.Context, r Runner, s keys.Space, fields map[string]any) error {
	args := redis.Args{s.Notes()}
	for field, note := range fields {
		text, err := json.Marshal(note)
		if err == nil && len(text) <= noteBytes {
			args = args.Add(field, strings.ToValidUTF8(string(text), "?"))
		}
	}
	var calls []redisconn.Call
	if len(n.ended) > 0 {
		calls = append(calls, redisconn.Command("HDEL", redis.Args{s.Notes()}.AddFlat(n.ended)...))
	}
	if len(args) > 1 {
		calls = append(calls, redisconn.Command("HSET", args...), redisconn.Command("PEXPIRE", s.Notes(), notesStay.Milliseconds()))
	}
	return failure(r.Do(ctx, calls...))
}

// ServerStats reads what the server says about itself, in one exchange.
func ServerStats(ctx context.Context, r Runner) (s inspect.ServerStats, err error) {
	began, told := time.Now(), Told{}
	for _, err := range told.Tell(ctx, r, "server", "memory", "persistence", "clients", "replication", "stats") {
		if err != nil {
			return s, err
		}
	}
	s.RoundTrip = time.Since(began)
	s.Version, s.Policy = told["redis_version"], told["maxmemory_policy"]
	s.UsedMemory, s.MaxMemory = numberIn(told["used_memory"]), numberIn(told["maxmemory"])
	s.Clients, s.Replicas, s.OpsASecond = countIn(told["connected_clients"]), countIn(told["connected_slaves"]), countIn(told["instantaneous_ops_per_sec"])
	s.AppendOnly, s.SavedAt = told["aof_enabled"] == "1", Moment(1000*numberIn(told["rdb_last_save_time"]))
	if up := numberIn(told["uptime_in_seconds"]); up > 0 {
		s.StartedAt = began.Add(-time.Duration(up) * time.Second)
	}
	return s, nil
}
