// Package walls enforces the rules in docs/architecture.md: which package may import which, what
// must not happen under a lock, and what an import may cost.
package walls

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/worqr/worqr" // see TestImportIsCheap
)

const module = "github.com/worqr/worqr"

// below lists, for each package of the module, the other packages that it may import. Imports point
// down: no package depends on one above it.
var below = map[string][]string{
	"":                     {"internal/await", "internal/batch", "internal/capacity", "internal/counts", "internal/doctor", "internal/engine", "internal/fleet", "internal/jsontext", "internal/logs", "internal/inbox", "internal/program", "internal/recur", "internal/store", "internal/tracing", "internal/verdict", "internal/words", "inspect", "worqrtrace"},
	"dash":                 {"", "inspect", "internal/reading", "internal/words"},
	"inspect":              {"internal/causes", "internal/logs", "internal/says", "internal/words"},
	"spread":               {"", "inspect"},
	"worqrtrace":           {"inspect", "internal/logs"},
	"internal/batch":       {"internal/verdict", "internal/words"},
	"internal/capacity":    {},
	"internal/causes":      {},
	"internal/child":       {"internal/redisserver"},
	"internal/counts":      {"inspect"},
	"internal/reading":     {},
	"internal/inbox":       {"inspect"},
	"internal/invoke":      {"internal/verdict"},
	"internal/jsontext":    {},
	"internal/keys":        {},
	"internal/store":       {"inspect", "internal/invariants", "internal/keys", "internal/logs", "internal/past", "internal/redisconn", "internal/topology"},
	"internal/engine":      {"internal/capacity", "internal/counts", "internal/invoke", "internal/logs", "internal/past", "internal/prefetch", "internal/store", "internal/tracing", "internal/verdict", "worqrtrace"},
	"internal/fleet":       {"internal/counts", "internal/engine", "internal/logs", "internal/store", "internal/tracing", "worqrtrace"},
	"internal/recur":       {"internal/logs", "internal/store"},
	"internal/await":       {"internal/store"},
	"internal/doctor":      {"inspect", "internal/causes", "internal/invariants", "internal/says", "internal/store", "internal/words"},
	"internal/says":        {"internal/words"},
	"internal/invariants":  {"inspect"},
	"internal/logs":        {},
	"internal/past":        {"inspect"},
	"internal/peertest":    {"", "inspect", "internal/redistest", "internal/store"},
	"internal/program":     {},
	"internal/redisconn":   {"internal/logs"},
	"internal/redisserver": {},
	"internal/redistest":   {"internal/keys", "internal/redisserver"},
	"internal/prefetch":    {},
	"internal/tracing":     {"inspect", "internal/logs", "worqrtrace"},
	"internal/verdict":     {"internal/logs", "internal/store"},
	"internal/words":       {},
	"internal/topology":    {"internal/keys", "internal/redisconn"},
}

// knowRedis lists the packages that may use commands, keys and the driver.
var knowRedis = []string{"internal/redisconn", "internal/store", "internal/keys", "internal/redistest", "internal/redisserver", "internal/peertest", "internal/topology"}

// A source is a Go file.
type source struct {
	dir, name string
	file      *ast.File
}

var fset = token.NewFileSet()

// sources returns the sources of the root module, without tests and examples.
func sources(t *testing.T) (all []*source) {
	t.Helper()
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := fs.Stat(root, path.Join(name, "go.mod"))
			if name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || name == "examples" || err == nil) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if dir == "." {
			dir = ""
		}
		all = append(all, &source{dir: dir, name: path.Base(name), file: f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 50 {
		t.Fatal("these are not the sources:", len(all))
	}
	return all
}

// at returns the position of a node.
func at(n ast.Node) token.Position { return fset.Position(n.Pos()) }

// Imports point down. There are no exceptions.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		may, known := below[s.dir]
		if !known {
			t.Errorf("%s is a new package: say in internal/walls what it may import", s.dir)
			continue
		}
		for _, i := range s.file.Imports {
			of, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module)
			of = strings.TrimPrefix(of, "/")
			if ours && !slices.Contains(may, of) {
				t.Errorf("%s imports %s, which is not below it", at(i), of)
			}
		}
	}
}

// reaching lists the packages of other modules that import internal packages of this one. Only the command may: Go
// builds it with the version of this module that it was released with. See RELEASING.md.
var reaching = map[string][]string{
	"cmd/worqr":              {"internal/logs", "internal/reading", "internal/words"},
	"cmd/worqr/internal/top": {"internal/words"},
}

// What other modules ship uses the public API, so that an older one compiles with a newer version of this module.
func TestShippedModules(t *testing.T) {
	t.Parallel()
	found := map[string][]string{}
	for _, dir := range []string{"cmd", "contrib", "worqrtest"} {
		err := fs.WalkDir(os.DirFS("../.."), dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(fset, path.Join("../..", name), nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range f.Imports {
				of, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module+"/internal/")
				if in := path.Dir(name); ours && !slices.Contains(found[in], "internal/"+of) {
					found[in] = append(found[in], "internal/"+of)
					slices.Sort(found[in])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(found, reaching) {
		t.Errorf("these packages import internal packages: %v; want %v", found, reaching)
	}
}

// Only some packages know Redis. The others use neither its driver nor its commands.
func TestOnlyStoreKnowsRedis(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if slices.Contains(knowRedis, s.dir) {
			continue
		}
		for _, i := range s.file.Imports {
			p := strings.Trim(i.Path.Value, `"`)
			if s.dir+s.name == "worqr.go" && strings.Contains(p, "redigo") {
				continue // the public Pool provides the driver's connections
			}
			if strings.Contains(p, "redigo") || strings.HasSuffix(p, "internal/redisconn") || strings.HasSuffix(p, "internal/keys") {
				t.Errorf("%s: imports %s", at(i), p)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok || len(c.Args) == 0 {
				return true
			}
			f, _ := c.Fun.(*ast.SelectorExpr)
			if f == nil || f.Sel.Name != "Command" && f.Sel.Name != "Do" && f.Sel.Name != "Send" {
				return true
			}
			for _, a := range c.Args {
				if b, ok := a.(*ast.BasicLit); ok && b.Kind == token.STRING {
					if w, _ := strconv.Unquote(b.Value); w != "" && w == strings.ToUpper(w) {
						t.Errorf("%s: names the command %s", at(b), w)
					}
				}
			}
			return true
		})
	}
}

// A program that imports the module pays little for that before main: scripts, for example, are
// built when they're first used.
func TestImportIsCheap(t *testing.T) {
	self := exec.Command(os.Args[0], "-test.run=^$")
	self.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := self.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	seen, total := 0, 0
	for _, m := range regexp.MustCompile(`(?m)^init `+module+`\S* .* (\d+) bytes`).FindAllSubmatch(out, -1) {
		n, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		seen, total = seen+1, total+n
	}
	if seen < 5 || total > 512<<10 {
		t.Errorf("%d packages allocate %d bytes: %s", seen, total, out)
	}
}

// A function whose name ends in Locked is called with the lock held: by another such function, or
// after the lock was taken.
func TestLocked(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		for name, body := range functions(s.file) {
			if strings.HasSuffix(name, "Locked") {
				continue
			}
			locked := false
			ast.Inspect(body, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch called := called(c); {
				case called == "Lock" || called == "RLock":
					locked = true
				case strings.HasSuffix(called, "Locked") && !locked:
					t.Errorf("%s: %s calls %s without having taken a lock", at(c), name, called)
				}
				return true
			})
		}
	}
}

// Nothing is logged while a lock is held: log lines follow the unlock.
func TestNoLogUnderLock(t *testing.T) {
	t.Parallel()
	for _, s := range sources(t) {
		if s.dir == "internal/logs" {
			continue
		}
		for name, body := range functions(s.file) {
			held := strings.HasSuffix(name, "Locked")
			var statements func(list []ast.Stmt, held bool) bool
			statements = func(list []ast.Stmt, held bool) bool {
				for _, st := range list {
					switch st := st.(type) {
					case *ast.DeferStmt:
						continue
					case *ast.ExprStmt:
						if c, ok := st.X.(*ast.CallExpr); ok {
							switch called(c) {
							case "Lock", "RLock":
								held = true
								continue
							case "Unlock", "RUnlock":
								held = false
								continue
							}
						}
					}
					if held {
						ast.Inspect(st, func(n ast.Node) bool {
							if _, ok := n.(*ast.FuncLit); ok {
								return false
							}
							if c, ok := n.(*ast.CallExpr); ok && logs(c) {
								t.Errorf("%s: %s logs under a lock", at(c), name)
							}
							return true
						})
						// A branch that unlocks and returns doesn't unlock for the code after it.
						continue
					}
					ast.Inspect(st, func(n ast.Node) bool {
						if b, ok := n.(*ast.BlockStmt); ok {
							statements(b.List, held)
							return false
						}
						return true
					})
				}
				return held
			}
			statements(body.List, held)
		}
	}
}

// functions returns the functions of a file, and the function literals in them, by name.
func functions(f *ast.File) map[string]*ast.BlockStmt {
	all := map[string]*ast.BlockStmt{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil {
			name = strings.TrimPrefix(types.ExprString(fn.Recv.List[0].Type), "*") + "." + name
		}
		all[name] = fn.Body
	}
	return all
}

// called returns the name of the called function.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// logs reports whether a call logs: x.log.Info(…), or a method of an outage or limiter.
func logs(c *ast.CallExpr) bool {
	f, ok := c.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch f.Sel.Name {
	case "Debug", "Info", "Warn", "Error":
		of, ok := f.X.(*ast.SelectorExpr)
		return ok && strings.EqualFold(of.Sel.Name, "log") || isIdent(f.X, "log")
	case "Note":
		return true
	}
	return false
}

func isIdent(e ast.Expr, name string) bool {
	i, ok := e.(*ast.Ident)
	return ok && i.Name == name
}

// secret lists fields that printing and logging must not show.
var secret = []string{"Key", "Payload", "Headers", "Result", "Value"}

// shows lists types that show such a field on purpose, or whose fields aren't secret.
var shows = []string{
	"inspect.Finding", // a key in Redis, in which secrets are replaced by a digest
	"dash.Options",    // functions
	".OnceError",      // GoString and Error hide the key
}

// Exported types with secret fields define how they are printed and logged.
func TestSecretsHide(t *testing.T) {
	t.Parallel()
	has, methods := map[string]token.Pos{}, map[string][]string{}
	for _, s := range sources(t) {
		if s.dir != "" && strings.HasPrefix(s.dir, "internal") {
			continue
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					of := strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*")
					methods[s.dir+"."+of] = append(methods[s.dir+"."+of], d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					of, ok := spec.(*ast.TypeSpec)
					if !ok || !of.Name.IsExported() {
						continue
					}
					fields, _ := of.Type.(*ast.StructType)
					if fields == nil {
						continue
					}
					for _, f := range fields.Fields.List {
						for _, name := range f.Names {
							if slices.Contains(secret, name.Name) {
								has[s.dir+"."+of.Name.Name] = name.Pos()
							}
						}
					}
				}
			}
		}
	}
	if len(has) < 10 {
		t.Error("too few types have secrets:", has)
	}
	for of, at := range has {
		if hides := slices.Contains(methods[of], "Format") && slices.Contains(methods[of], "LogValue"); hides == slices.Contains(shows, of) {
			t.Errorf("%s: %s has a field that is secret, and hides it: %v", fset.Position(at), of, hides)
		}
	}
}
