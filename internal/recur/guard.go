package recur

import (
	"reflect"
	"strings"
)

// A guard looks for data that may change while it's read, before reading any of it: a lock also
// guards fields in front of it, and reading a map while it's written crashes the process.
type guard struct {
	seen map[reflect.Type]bool // types that have none, or are being checked: types may be recursive
	left int
}

// stops reports whether a value must not be read. Types show everything except the contents of
// interfaces, which are followed only while no lock has been found. Maps aren't followed: their
// contents are checked when they're read, once nothing next to them has a lock.
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

// changes reports whether a type contains anything but plain data, directly or indirectly.
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
