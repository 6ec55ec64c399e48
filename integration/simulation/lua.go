package simulation

import (
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/gopher-json"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"

	"github.com/worqr/worqr/integration/spec"
)

// An interpreter runs the scripts of one server, all in one Lua state: opening
// one for each call, as miniredis does, would take most of the time.
type interpreter struct {
	state    *lua.LState
	run      func(args []string) any // a command
	programs map[string]*program     // loaded, by the digest of the clients' source
	rewrite  func(script string) string
}

// A program is a loaded script.
type program struct {
	verb  string
	proto *lua.FunctionProto
}

func newInterpreter(run func(args []string) any) *interpreter {
	in := &interpreter{
		state:    lua.NewState(lua.Options{SkipOpenLibs: true, RegistrySize: 1 << 14}),
		run:      run,
		programs: map[string]*program{},
	}
	l := in.state
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	// string.match returns no value if nothing matches, and not nil.
	tonumber := l.GetGlobal("tonumber").(*lua.LFunction).GFunction
	l.SetGlobal("tonumber", l.NewFunction(func(l *lua.LState) int {
		if l.GetTop() == 0 {
			l.Push(lua.LNil)
			return 1
		}
		return tonumber(l)
	}))
	l.Push(l.NewFunction(json.Loader))
	l.Call(0, 1)
	l.SetGlobal("cjson", l.Get(-1))
	l.Pop(1)
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call":        func(l *lua.LState) int { return in.call(l, false) },
		"pcall":       func(l *lua.LState) int { return in.call(l, true) },
		"error_reply": func(l *lua.LState) int { l.Push(errorTable(l, l.CheckString(1))); return 1 },
		"sha1hex":     func(l *lua.LState) int { l.Push(lua.LString(spec.Digest(l.CheckString(1)))); return 1 },
	}))
	return in
}

func (in *interpreter) close() { in.state.Close() }

var compiled sync.Map // source → *lua.FunctionProto

// load compiles the script of a verb and stores it.
func (in *interpreter) load(verb, source string) (*program, error) {
	p := &program{verb: verb}
	sha := spec.Digest(source)
	if in.rewrite != nil {
		source = in.rewrite(source)
	}
	proto, ok := compiled.Load(source)
	if !ok {
		chunk, err := parse.Parse(strings.NewReader(source), p.verb)
		if err != nil {
			return nil, err
		}
		made, err := lua.Compile(chunk, p.verb)
		if err != nil {
			return nil, err
		}
		proto, _ = compiled.LoadOrStore(source, made)
	}
	p.proto = proto.(*lua.FunctionProto)
	in.programs[sha] = p
	return p, nil
}

// eval runs a program and returns its reply.
func (in *interpreter) eval(p *program, keys, args []string) any {
	l := in.state
	l.SetGlobal("KEYS", stringTable(l, keys))
	l.SetGlobal("ARGV", stringTable(l, args))
	l.Push(l.NewFunctionFromProto(p.proto))
	defer l.SetTop(0)
	if err := l.PCall(0, 1, nil); err != nil {
		if api, ok := errors.AsType[*lua.ApiError](err); ok {
			if t, ok := api.Object.(*lua.LTable); ok {
				if text, ok := t.RawGetString("err").(lua.LString); ok {
					return refusal(text)
				}
			}
		}
		return refusal("ERR " + p.verb + ": " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return fromLua(l.Get(-1))
}

func stringTable(l *lua.LState, all []string) *lua.LTable {
	t := l.CreateTable(len(all), 0)
	for _, s := range all {
		t.Append(lua.LString(s))
	}
	return t
}

func errorTable(l *lua.LState, text string) *lua.LTable {
	t := l.NewTable()
	t.RawSetString("err", lua.LString(text))
	return t
}

// call implements redis.call and redis.pcall.
func (in *interpreter) call(l *lua.LState, protected bool) int {
	args := make([]string, l.GetTop())
	for i := range args {
		switch a := l.Get(i + 1).(type) {
		case lua.LNumber:
			args[i] = number(float64(a))
		case lua.LString:
			args[i] = string(a)
		default:
			l.Error(errorTable(l, "ERR Lua redis lib command arguments must be strings or integers"), 1)
		}
	}
	reply := in.run(args)
	if e, ok := reply.(refusal); ok && !protected {
		l.Error(errorTable(l, string(e)), 1)
	}
	l.Push(toLua(l, reply))
	return 1
}

// number formats a number as Redis does for a command in Lua.
func number(f float64) string {
	if f == float64(int64(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

func toLua(l *lua.LState, reply any) lua.LValue {
	switch r := reply.(type) {
	case nil:
		return lua.LFalse
	case int64:
		return lua.LNumber(r)
	case string:
		return lua.LString(r)
	case status:
		t := l.NewTable()
		t.RawSetString("ok", lua.LString(r))
		return t
	case refusal:
		return errorTable(l, string(r))
	}
	all := reply.([]any)
	t := l.CreateTable(len(all), 0)
	for i, v := range all {
		t.RawSetInt(i+1, toLua(l, v))
	}
	return t
}

func fromLua(value lua.LValue) any {
	switch v := value.(type) {
	case lua.LNumber:
		return int64(v)
	case lua.LString:
		return string(v)
	case lua.LBool:
		if v {
			return int64(1)
		}
	case *lua.LTable:
		if text, ok := v.RawGetString("err").(lua.LString); ok {
			return refusal(text)
		}
		all := []any{}
		for i := 1; ; i++ {
			e := v.RawGetInt(i)
			if e == lua.LNil {
				return all
			}
			all = append(all, fromLua(e))
		}
	}
	return nil
}
