package keys

import (
	"testing"

	"github.com/matryer/is"
)

// Every key is read back as what it was named as.
func TestParse(t *testing.T) {
	for _, prefix := range []string{"worqr", "a:b", "queues", "worker", "x:failed:y"} {
		for _, name := range []string{"q", "a:b", ":", "failed:queues:"} {
			s := NewSpace(prefix)
			for _, q := range []Queue{s.Queue(name), s.Queue(name).Failed()} {
				for kind, key := range map[string]string{
					"queues": q.Waiting(), "workers": q.Workers(), "idle": q.Idle(), "suspects": q.Suspects(), "rounds": q.Rounds(),
					"token": q.Token(), "canceled": q.Canceled(), "unique": q.Unique(), "schedule": q.Schedule(), "contents": q.Contents(),
					"entries": q.Entries(), "ledger": q.Ledger(), "paused": q.Paused(),
					"gaps": q.Gaps(), "holders": q.Holders(), "stopping": q.Stopping(), "batches": q.Batches(),
				} {
					t.Run(key, func(t *testing.T) {
						is := is.New(t)
						k, ok := s.Parse(key)
						is.True(ok)
						is.Equal(k, Key{Kind: kind, Type: types[kind], Queue: &q, Name: name})
					})
				}
				for _, part := range []string{"p1", "k:{a}:b", "r:p1", "}:{"} {
					for kind, key := range map[string]string{
						"process": q.Process(part), "working": q.Working(part), "cancel": q.Cancel(part), "keyed": q.Keyed(part), "once": q.Once(part),
						"batch": q.Batch(part),
					} {
						t.Run(key, func(t *testing.T) {
							is := is.New(t)
							k, ok := s.Parse(key)
							is.True(ok)
							is.Equal(k, Key{Kind: kind, Type: parts[kind], Queue: &q, Name: name, Part: part})
						})
					}
				}
			}
			for kind, key := range map[string]string{"registry": s.Registry(), "workers": s.Workers(), "worker": s.Worker("w1")} {
				k, ok := s.Parse(key)
				is := is.New(t)
				is.True(ok)
				is.Equal(k.Kind, kind)
				is.True(k.Queue == nil)
			}
		}
	}
	if n := len(types) + len(parts) + 3; n != 26 {
		t.Errorf("%d kinds of key, and the table in keys.go has 26", n)
	}
}

func TestParseForeign(t *testing.T) {
	s := NewSpace("worqr")
	for key, others := range map[string]bool{
		"worqr:": false, "worqr:x": false, "worqr:queues": false, "worqr:queues:q": false, "worqr:queues:{q": false, "worqr:queues:{}": false,
		"worqr:queues:{q}x": false, "worqr:queues:{q}:x": false, "worqr:process:{q}": false, "worqr:jobs:{q}": false,
		"worqr:failed:failed:queues:{q}": false,
		"worqr:b:queues:{q}":             true, "worqr:b:failed:keyed:{q}:k:x": true, "worqr:b:worker:w": true,
		"worqr:worker:queues:{q}": true, "worqr:worker:worker:w": true, "worqr:worker:": false, "worqr:worker:{q}": false, "worqr:b:registry": true,
	} {
		t.Run(key, func(t *testing.T) {
			is := is.New(t)
			_, ok := s.Parse(key)
			is.True(!ok)
			is.Equal(s.Others(key), others)
		})
	}
	_, ok := s.Parse("other:queues:{q}")
	is.New(t).True(!ok)
}
