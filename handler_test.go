package worqr_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/worqr/worqr"
	"github.com/worqr/worqr/inspect"
	"github.com/worqr/worqr/internal/redistest"
)

// A handler that has ended its task itself may return anything. The log doesn't say that such a task
// is retried.
func TestHandlerFinishes(t *testing.T) {
	is := parallel(t)
	var told journal
	p, q := openQueue(t, worqr.Options{Logger: told.Logger()})
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		_ = t.Finish(ctx)
		return errors.New("after it finished")
	}, nil)
	enqueue(t, q, "a", "b")
	stop := run(t, p)
	eventually(t, "both have returned", func() bool { return p.Stats().HandlerErrors == 2 })
	stop()
	is.Equal(p.Stats().Finished, int64(2))
	is.Equal(stats(t, q), inspect.QueueStats{})
	is.Equal(len(told.Lines("handler returned an error after it had ended its task")), 2)
	is.Equal(len(told.Lines("will be retried")), 0)
}

type key struct{}

func TestBadHandleOptions(t *testing.T) {
	is := parallel(t)
	h := func(context.Context, *worqr.Task) error { return nil }
	both := map[string]worqr.HandleOptions{
		"Concurrency":               {Concurrency: -1},
		"Timeout":                   {Timeout: -1},
		"Grace":                     {Grace: -1},
		"KeepFailed":                {KeepFailed: -1},
		"Weight":                    {Weight: -1},
		"Weight above Capacity":     {Weight: 11},
		"OnPanic":                   {OnPanic: 2},
		"OnPanic negative":          {OnPanic: -1},
		"FailedOptions alone":       {OnFailedOptions: &worqr.HandleOptions{}},
		"FailedOptions of those":    {OnFailedOptions: &worqr.HandleOptions{OnFailedOptions: &worqr.HandleOptions{}}},
		"FailedOptions.OnFailed":    {OnFailedOptions: &worqr.HandleOptions{OnFailed: h}},
		"FailedOptions.KeepFailed":  {OnFailedOptions: &worqr.HandleOptions{KeepFailed: 1}},
		"FailedOptions.Weight":      {OnFailedOptions: &worqr.HandleOptions{Weight: 11}},
		"FailedOptions.Concurrency": {OnFailedOptions: &worqr.HandleOptions{Concurrency: -1}},
	}
	for name, o := range both {
		p := open(t, worqr.Options{Capacity: 10})
		panics(t, name, func() { p.Queue("q").Handle(h, &o) })
		if !strings.HasSuffix(name, "alone") {
			o.OnFailed = h
			panics(t, name+" with OnFailed", func() { p.Queue("q").Handle(h, &o) })
			o.OnFailed = nil
		}
		p.Queue("q").Handle(h, nil) // the failed call left nothing behind
		is.True(is_(p.Queue("q").SetOptions(&o), worqr.ErrInvalid))
	}
	p, q := openQueue(t, worqr.Options{Capacity: 10})
	is.True(is_(q.SetOptions(nil), worqr.ErrInvalid)) // no handler
	q.Handle(h, &worqr.HandleOptions{OnFailed: h, OnFailedOptions: &worqr.HandleOptions{Concurrency: 2}})
	is.NoErr(q.SetOptions(nil))
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Weight: 10, OnFailedOptions: &worqr.HandleOptions{Concurrency: 3}}))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{OnFailed: h}), worqr.ErrInvalid))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{Exclusive: true}), worqr.ErrInvalid))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{OnFailedOptions: &worqr.HandleOptions{Exclusive: true}}), worqr.ErrInvalid))
	is.True(is_(p.SetCapacity(-1), worqr.ErrInvalid))
	is.NoErr(p.SetCapacity(0))
	is.NoErr(p.SetCapacity(1))
	is.True(is_(q.SetOptions(&worqr.HandleOptions{Weight: 2}), worqr.ErrInvalid))
	is.True(is_(p.Queue("bad name").SetOptions(nil), worqr.ErrInvalid) || is_(p.Queue("bad name").SetOptions(nil), worqr.ErrBadName))
	bad := p.Queue("bad name")
	is.True(is_(failure(bad.Add(t.Context(), worqr.TaskSpec{Key: "k"})), worqr.ErrBadName))
	is.True(is_(failure(bad.Add(t.Context(), worqr.TaskSpec{At: time.Now()})), worqr.ErrBadName))
	is.True(is_(failure(bad.RequeueAllFailed(t.Context())), worqr.ErrBadName))
	is.True(is_(failure(bad.DeleteFailed(t.Context(), "x")), worqr.ErrBadName))
}

// A handler may change the payload: the task keeps its identity.
func TestHandlerChangesPayload(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{})
	started := make(chan string, 10)
	q.Handle(func(ctx context.Context, t *worqr.Task) error {
		for i := range t.Payload {
			t.Payload[i] = 'x'
		}
		t.Payload = nil
		started <- ""
		<-ctx.Done()
		return errors.New("ended")
	}, nil)
	run(t, p)
	enqueue(t, q, "job")
	receive(t, started, 1)
	report := cancel(t, q, "job")
	wait(t, report)
	is.Equal(len(started), 0)
}

// A mail is the payload of these tests.
type mail struct {
	To    string
	Size  int
	Sent  time.Time
	Count int64 `json:",string"`
}

func TestJSONRoundTrip(t *testing.T) {
	is := parallel(t)
	prefix := redistest.Prefix(t)
	p, q := openQueue(t, worqr.Options{Prefix: prefix})
	got := make(chan mail, 10)
	q.Handle(worqr.JSON(func(_ context.Context, m mail, task *worqr.Task) error {
		if task.Queue != "q" {
			return errors.New("the task is missing")
		}
		got <- m
		return nil
	}), &worqr.HandleOptions{Concurrency: 1})
	want := []mail{
		{To: "<a&b>", Size: 1, Sent: time.Unix(1e9, 0).UTC(), Count: math.MaxInt64},
		{To: "ü\u2028\x00", Size: -2},
		{},
	}
	for _, m := range want {
		is.NoErr(q.Enqueue(t.Context(), sure(json.Marshal(m))(t)))
	}
	stop := run(t, p)
	is.Equal(receive(t, got, len(want)), want)
	stop()
	is.Equal(p.Stats().HandlerErrors, int64(0))
	nothingLeft(t, prefix, "q")
}

func TestJSONUndecodable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ payload, says string }{
		"empty":            {``, "byte 0 of 0"},
		"no JSON":          {`§ecret`, "byte 1 of 7"},
		"cut short":        {`{"To":"secret`, "of 13"},
		"trailing word":    {`{"To":"secret"} secret`, "byte 17 of 22"},
		"trailing value":   {`{"To":"secret"}{}`, "byte 16 of 17"},
		"trailing brace":   {`{}}`, "byte 3 of 3"},
		"trailing NUL":     {"{}\x00", "byte 3 of 3"},
		"another type":     {`"secret"`, "not a worqr_test.mail: want worqr_test.mail, found string, at byte"},
		"type of a field":  {`{"Size":"secret"}`, "field Size: want int, found string, at byte"},
		"number too large": {`{"Size":77777777777777777777}`, "field Size: want int, found number, at byte"},
		"method":           {`{"Sent":"secret"}`, "UnmarshalJSON failed with a *time.ParseError"},
		"string option":    {`{"Count":"secret77"}`, "worqr_test.mail"},
		"too deep":         {strings.Repeat("[", 20000), "of 20000"},
	} {
		t.Run(name, func(t *testing.T) {
			is := parallel(t)
			handle := worqr.JSON(func(context.Context, mail, *worqr.Task) error {
				t.Error("the handler was called")
				return nil
			})
			err := handle(t.Context(), &worqr.Task{Payload: []byte(c.payload)})
			is.True(broken(err))
			tells(t, err, c.says)
			for _, part := range []string{"secret", "ecret", "§", "\u00c2", "777", "}", "'", `"`, "Sent", "\x00", "["} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%q is told by: %v", part, err)
				}
			}
			_, quotes := errors.AsType[*json.SyntaxError](err)
			is.True(!quotes)
		})
	}
}

// foreign has a method whose error names a field that the type doesn't have.
type foreign struct{ A int }

func (*foreign) UnmarshalJSON([]byte) error {
	return &json.UnmarshalTypeError{Value: "secret", Type: reflect.TypeFor[int](), Field: "A.secret"}
}

// Errors name a field only if the type has it: the keys of maps come from the payload.
func TestJSONFields(t *testing.T) {
	t.Parallel()
	type inner struct {
		B int `json:"b,omitempty"`
	}
	type outer struct {
		inner
		List  []*inner         `json:"list"`
		Named map[string]inner `json:"named"`
		Plain map[string]int
	}
	decode := func(payload string) error {
		return worqr.JSON(func(context.Context, outer, *worqr.Task) error { return nil })(t.Context(), &worqr.Task{Payload: []byte(payload)})
	}
	for payload, want := range map[string]string{
		`{"list":[{"b":"secret"}]}`:           "field list",
		`{"named":{"secret":{"b":"secret"}}}`: "field named",
		`{"Plain":{"secret":"secret"}}`:       "want int, found string",
		`{"list":{"secret":1}}`:               "field list: want []*worqr_test.inner, found object",
		`{"b":true}`:                          "b: want int, found bool",
		`{"b":1.5}`:                           "b: want int, found number, at byte",
	} {
		err := decode(payload)
		tells(t, err, want)
		if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "1.5") {
			t.Errorf("%s is told by: %v", payload, err)
		}
	}
	err := worqr.JSON(func(context.Context, foreign, *worqr.Task) error { return nil })(t.Context(), &worqr.Task{Payload: []byte("{}")})
	tells(t, err, "field A: want int, found something else")
	if strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}

func TestJSONHandler(t *testing.T) {
	is := parallel(t)
	own := errors.New("own")
	handle := worqr.JSON(func(_ context.Context, v map[string]any, _ *worqr.Task) error {
		is.Equal(v, map[string]any{"a": 1.0})
		return own
	})
	task := &worqr.Task{Payload: []byte(" {\"a\":1}\r\n\t ")} // space doesn't matter
	is.Equal(handle(t.Context(), task), own)                  // the error itself
}

// A handler that could only fail isn't made.
func TestBadHandlers(t *testing.T) {
	t.Parallel()
	panics(t, "no function", func() { worqr.JSON[int](nil) })
	panics(t, "no handlers", func() { worqr.Mux(nil) })
	panics(t, "no program", func() { worqr.Command("") })
}

type (
	tree  []tree
	graph map[string]graph
	odd   []even
	even  map[string]*odd
	node  struct {
		Children []node
		Parent   *node
		Tree     tree
	}
)

// A payload of the wrong kind is also malformed for recursive types.
func TestJSONRecursive(t *testing.T) {
	t.Parallel()
	refused := func(name string, h worqr.Handler, payload string) {
		done := make(chan error, 1)
		go func() { done <- h(t.Context(), &worqr.Task{Payload: []byte(payload)}) }()
		if err := receive(t, done, 1)[0]; !broken(err) {
			t.Errorf("%s: %s: %v", name, payload, err)
		}
	}
	for _, payload := range []string{`1`, `"x"`, `true`, `[[1]]`, `{"a":{"b":1}}`, `{"a":["x"]}`} {
		refused("tree", worqr.JSON(func(context.Context, tree, *worqr.Task) error { return nil }), payload)
		refused("graph", worqr.JSON(func(context.Context, graph, *worqr.Task) error { return nil }), payload)
		refused("odd", worqr.JSON(func(context.Context, odd, *worqr.Task) error { return nil }), payload)
	}
	refused("node", worqr.JSON(func(context.Context, node, *worqr.Task) error { return nil }), `{"Tree":[[1]]}`)
	refused("node", worqr.JSON(func(context.Context, node, *worqr.Task) error { return nil }), `{"Children":[{"Children":[{"Parent":1}]}]}`)
	refused("deep", worqr.JSON(func(context.Context, tree, *worqr.Task) error { return nil }), strings.Repeat("[", 1<<20))
}

func TestMux(t *testing.T) {
	is := is.New(t)
	said := errors.New("charged")
	all := map[string]worqr.Handler{"charge": func(context.Context, *worqr.Task) error { return said }}
	h := worqr.Mux(all)
	all[""] = func(context.Context, *worqr.Task) error { return nil }
	typed := func(typ string) *worqr.Task { return &worqr.Task{Headers: map[string]string{"type": typ}} }
	is.Equal(h(t.Context(), typed("charge")), said)
	for wants, task := range map[string]*worqr.Task{
		`no handler for type "refund\n"`: typed("refund\n"),
		`no handler for type ""`:         typed(""),
		`no "type" header`:               {}, // Mux copied the map
	} {
		err := h(t.Context(), task)
		is.True(strings.Contains(err.Error(), wants))
		is.True(!worqr.IsPermanent(err))
	}
	is.NoErr(worqr.Mux(all)(t.Context(), &worqr.Task{}))
	is.True(len(fmt.Sprint(h(t.Context(), typed(strings.Repeat("x", 1000))))) < 200)
	defer func() { is.Equal(recover(), `worqr: the handler for type "none" is nil`) }()
	worqr.Mux(map[string]worqr.Handler{"none": nil})
}

func TestBadBatchOptions(t *testing.T) {
	is := parallel(t)
	p, q := openQueue(t, worqr.Options{Capacity: 10})
	h := func(context.Context, []*worqr.Task) []error { return nil }
	for name, o := range map[string]*worqr.BatchOptions{
		"Size":              {Size: -1},
		"Size too large":    {Size: 10_001},
		"Concurrency":       {HandleOptions: worqr.HandleOptions{Concurrency: -1}},
		"Concurrency large": {HandleOptions: worqr.HandleOptions{Concurrency: 1 << 30}},
		"Weight":            {HandleOptions: worqr.HandleOptions{Weight: 11}},
		"Timeout":           {HandleOptions: worqr.HandleOptions{Timeout: time.Second}, Wait: time.Second},
		"Timeout, default":  {HandleOptions: worqr.HandleOptions{Timeout: time.Millisecond}},
	} {
		panics(t, name, func() { q.HandleBatch(h, o) })
	}
	panics(t, "nil", func() { q.HandleBatch(nil, nil) })
	q.HandleBatch(h, nil) // the failed calls left nothing behind
	panics(t, "twice", func() { q.HandleBatch(h, nil) })
	panics(t, "Use", func() { p.Use(func(h worqr.Handler) worqr.Handler { return h }) })
	is.NoErr(q.SetOptions(&worqr.HandleOptions{Concurrency: 2}))
}
