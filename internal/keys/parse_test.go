package keys

import (
	"reflect"
	"slices"
	"testing"

	"github.com/matryer/is"
)

// Every key is parsed back into what it was made from.
func TestParse(t *testing.T) {
	for _, prefix := range []string{"worqr", "a:b", "queues", "worker", "x:failed:y"} {
		for _, name := range []string{"q", "a:b", ":", "failed:queues:"} {
			s := NewSpace(prefix)
			for _, q := range []Queue{s.Queue(name), s.Queue(name).Failed()} {
				for _, row := range Table {
					want := Key{Kind: row.Kind, Type: row.Type}
					parts := []string{"p1", "k:{a}:b", "r:p1", "}:{"}
					switch {
					case row.Part == "":
						parts = []string{""}
					case row.Fleet:
						parts = []string{"w1"}
					}
					if row.Fleet && q.IsFailed() {
						continue
					}
					if !row.Fleet {
						want.Queue, want.Name = &q, name
					}
					for _, want.Part = range parts {
						key := row.Of(q, want.Part)
						k, ok := s.Parse(key)
						if is := is.New(t); !ok || !reflect.DeepEqual(k, want) {
							t.Log(key)
							is.Equal(k, want)
						}
					}
				}
			}
		}
	}
}

// Each row of the table has a method, and each method has a row.
func TestTable(t *testing.T) {
	t.Parallel()
	s := NewSpace("worqr")
	q := s.Queue("q")
	var rows, methods []string
	for _, row := range Table {
		rows = append(rows, row.Of(q, "x"))
	}
	for of, but := range map[any][]string{s: {"Keys", "Pattern"}, q: {"Channel", "End", "Wake"}} {
		v := reflect.ValueOf(of)
		for i := range v.NumMethod() {
			m := v.Method(i)
			if m.Type().NumOut() != 1 || m.Type().Out(0).Kind() != reflect.String || slices.Contains(but, v.Type().Method(i).Name) {
				continue
			}
			args := []reflect.Value{reflect.ValueOf("x")}[:m.Type().NumIn()]
			methods = append(methods, m.Call(args)[0].String())
		}
	}
	slices.Sort(rows)
	slices.Sort(methods)
	is.New(t).Equal(rows, methods)
}

func TestParseForeign(t *testing.T) {
	s := NewSpace("worqr")
	for key, others := range map[string]bool{
		"worqr:": false, "worqr:x": false, "worqr:queues": false, "worqr:queues:q": false, "worqr:queues:{q": false, "worqr:queues:{}": false,
		"worqr:queues:{q}x": false, "worqr:queues:{q}:x": false, "worqr:process:{q}": false, "worqr:jobs:{q}": false,
		"worqr:failed:failed:queues:{q}": false,
		"worqr:b:queues:{q}":             true, "worqr:b:failed:result:{q}:k:x": true, "worqr:b:worker:w": true,
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
