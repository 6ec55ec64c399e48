package recur

import (
	"reflect"
	"strings"
)

// A guard looks for what may change while it's read, before any of it is: a lock guards what stands
// before it as well, and a map that is written while it's read ends the process.
type guard struct {
	seen map[reflect.Type]bool // they have none, or are being looked at: types may be recursive
	left int
}

// stops reports whether a value mustn't be read. Types tell all but what is in interfaces, which are
// followed only while no lock has been found. Maps aren't followed: what is in one is looked at when
// it's read, once nothing beside it has a lock.
func (g *guard) stops(v reflect.Value, depth int) bool {
	if g.left--; g.left < 0 || depth > deepestPart {
		return true
	}
	if !v.IsValid() {
		return false
	}
	if g.changes(v.Type()) {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.Type() != reflect.PointerTo(typeOfZone) && g.stops(v.Elem(), depth+1)
	case reflect.Struct:
		for i := 0; i < v.NumField() && v.Type() != typeOfTime; i++ {
			if g.stops(v.Field(i), depth+1) {
				return true
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if g.stops(v.Index(i), depth+1) {
				return true
			}
		}
	}
	return false
}

// changes reports whether a type has what isn't plain data, wherever it leads.
func (g *guard) changes(t reflect.Type) bool {
	if g.seen[t] || t == typeOfTime || t == typeOfZone {
		return false
	}
	g.seen[t] = true
	if path := t.PkgPath(); path == "sync" || strings.HasPrefix(path, "sync/") {
		return true
	}
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return g.changes(t.Elem())
	case reflect.Map:
		return g.changes(t.Key()) || g.changes(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if g.changes(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
