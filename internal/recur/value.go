package recur

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"time"
)

// Limits of what valueOf reads.
const (
	mostValues  = 10_000
	mostKeys    = 1000
	deepestPart = 32
)

// valueOf returns bytes that are equal for schedules of the same type with equal values, in every
// process. It returns false if the schedule isn't plain data: a function's variables can't be read,
// and data with a lock may change while it's read.
func valueOf(schedule any) ([]byte, bool) {
	w := &reader{left: mostValues, types: map[reflect.Type]bool{}}
	w.guarded(reflect.ValueOf(schedule), 0)
	return w.out.Bytes(), !w.opaque
}

type reader struct {
	out    bytes.Buffer
	left   int
	opaque bool
	types  map[reflect.Type]bool // types that a guard has checked
}

// guarded is value for data that no guard has checked.
func (r *reader) guarded(v reflect.Value, depth int) {
	g := &guard{seen: r.types, left: r.left}
	r.opaque = r.opaque || g.stops(v, depth)
	r.value(v, depth)
}

func (r *reader) word(n uint64) { r.out.Write(binary.BigEndian.AppendUint64(nil, n)) }

func (r *reader) text(s string) {
	r.word(uint64(len(s)))
	r.out.WriteString(s)
}

var (
	local      = reflect.ValueOf(time.Local).Pointer()
	typeOfZone = reflect.TypeFor[time.Location]()
	typeOfTime = reflect.TypeFor[time.Time]()
)

func (r *reader) value(v reflect.Value, depth int) {
	if r.left--; r.left < 0 || depth > deepestPart {
		r.opaque = true
	}
	if r.opaque {
		return
	}
	if !v.IsValid() {
		r.text("nil")
		return
	}
	t := v.Type()
	r.text(t.String())
	switch {
	case t == typeOfTime:
		r.time(v)
	case t.Kind() == reflect.Pointer && t.Elem() == typeOfZone:
		r.text(zoneOf(v))
	default:
		r.plain(v, depth+1)
	}
}

// zoneOf returns the name of a zone: the other fields are a cache.
func zoneOf(v reflect.Value) string {
	if v.Pointer() == local {
		return "Local"
	}
	if v.IsNil() {
		return "UTC"
	}
	if name := v.Elem().FieldByName("name"); name.IsValid() {
		return name.String()
	}
	return ""
}

// time writes a time without its monotonic reading and other process-local data. A time in an
// unexported field can't be converted, so it makes the schedule opaque.
func (r *reader) time(v reflect.Value) {
	if !v.CanInterface() {
		r.opaque = true
		return
	}
	at := v.Interface().(time.Time)
	r.word(uint64(at.Unix()))
	r.word(uint64(at.Nanosecond()))
	r.text(at.Location().String())
}

func (r *reader) plain(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		r.word(map[bool]uint64{true: 1}[v.Bool()])
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		r.word(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		r.word(v.Uint())
	case reflect.Float32, reflect.Float64:
		r.word(math.Float64bits(v.Float()))
	case reflect.String:
		r.text(v.String())
	case reflect.Pointer, reflect.Interface:
		r.value(v.Elem(), depth)
	case reflect.Struct:
		for i := range v.NumField() {
			r.value(v.Field(i), depth)
		}
	case reflect.Slice, reflect.Array:
		r.word(uint64(v.Len()))
		for i := 0; i < v.Len() && !r.opaque; i++ {
			r.value(v.Index(i), depth)
		}
	case reflect.Map:
		r.pairs(v, depth)
	default: // not comparable across processes
		r.opaque = true
	}
}

// pairs writes the pairs of a map in a fixed order.
func (r *reader) pairs(v reflect.Value, depth int) {
	if v.Len() > mostKeys {
		r.opaque = true
		return
	}
	var all []string
	for pairs := v.MapRange(); pairs.Next() && !r.opaque; {
		one := &reader{left: r.left, types: r.types}
		one.guarded(pairs.Key(), depth)
		one.guarded(pairs.Value(), depth)
		r.left, r.opaque = one.left, r.opaque || one.opaque
		all = append(all, one.out.String())
	}
	slices.Sort(all)
	for _, one := range all {
		r.text(one)
	}
}
