package api

import (
	"context"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
)

// arguments are the arguments for calls of methods, by type.
var arguments = []any{
	inspect.NamedReady,
	"x", []byte("x"), 3, time.Now(), time.Duration(0), error(io.EOF),
	worqr.Interval(time.Hour), (*worqr.EveryOptions)(nil), worqr.TaskSpec{Payload: []byte("x")}, worqr.Query{Payload: []byte("x")}, (*inspect.CheckOptions)(nil), inspect.Silence{Kind: "paused", Reason: "x", Until: time.Now().Add(time.Hour)}, inspect.FindingKind("paused"), (*worqr.HandleOptions)(nil),
	worqr.Handler(func(context.Context, *worqr.Task) error { return nil }),
	func(h worqr.Handler) worqr.Handler { return h },
	worqr.BatchHandler(func(context.Context, []*worqr.Task) []error { return nil }), (*worqr.BatchOptions)(nil),
}

// A method is a method of a peer, a queue or a task.
type method struct {
	name string // such as Queue.Enqueue
	call func(ctx context.Context)
}

// methods returns all methods of a peer, a queue or a task, by name. It also consumes their
// results: sequences to their end, reports of cancels until nothing runs. A method with a parameter
// of an unknown type fails the test, so that none is forgotten.
func methods(t testing.TB, of any) (all []method) {
	t.Helper()
	v := reflect.ValueOf(of)
	for m := range v.Type().Methods() {
		name := v.Type().Elem().Name() + "." + m.Name
		if m.Name == "Format" {
			all = append(all, method{name, func(context.Context) { _ = fmt.Sprintf("%v %+v %s", of, of, of) }})
			continue
		}
		f := v.MethodByName(m.Name)
		in := []reflect.Value{{}} // the context
		first := 0
		if f.Type().NumIn() > 0 && f.Type().In(0) == reflect.TypeFor[context.Context]() {
			first = 1
		}
		for i := first; i < f.Type().NumIn(); i++ {
			p := f.Type().In(i)
			if f.Type().IsVariadic() && i == f.Type().NumIn()-1 {
				p = p.Elem()
			}
			k := slices.IndexFunc(arguments, func(a any) bool { return reflect.TypeOf(a).AssignableTo(p) })
			if k < 0 {
				t.Fatalf("%s has a parameter of type %v: say in arguments what it is called with", name, p)
			}
			in = append(in, reflect.ValueOf(arguments[k]))
		}
		all = append(all, method{name, func(ctx context.Context) {
			if name == "Peer.Events" { // it has no other end
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				ctx = short
			}
			args := slices.Clone(in)
			args[0] = reflect.ValueOf(ctx)
			for _, r := range f.Call(args[1-first:]) {
				look(ctx, r)
			}
		}})
	}
	return all
}

// look consumes a result.
func look(ctx context.Context, result reflect.Value) {
	switch r := result.Interface().(type) {
	case *worqr.CancelReport:
		if r != nil {
			_ = r.Wait(ctx)
		}
	case *worqr.Task:
		if r != nil {
			_ = r.Stop(ctx)
		}
	case []*worqr.Task:
		for _, t := range r {
			_ = t.Stop(ctx)
		}
	case fmt.Stringer:
		if !result.IsZero() {
			_ = r.String()
		}
	case iter.Seq2[inspect.Event, error]:
		for range r {
		}
	default:
		if t := result.Type(); t.Kind() == reflect.Func && strings.HasPrefix(t.Name(), "Seq2[") {
			for range result.Seq2() {
			}
		}
	}
}
