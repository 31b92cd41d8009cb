package conf

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"muxpost.dev/muxpost/core/fault"
)

// tag is the struct tag that names a field's key.
const tag = "conf"

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// decoder walks a section and the struct it is read into, side by side, and collects every mistake.
type decoder struct {
	lines    lines
	problems []problem
}

// structBehind returns the struct that into points to; anything else is a mistake in the program.
func structBehind(into any) (reflect.Value, error) {
	v := reflect.ValueOf(into)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return v, fault.Newf(fault.Internal, "", "conf: %T is not a pointer to a struct", into)
	}
	return v.Elem(), nil
}

// wrong records that the value at the path must be something else.
func (d *decoder) wrong(path []string, must string, got any) {
	d.problems = append(d.problems, problem{d.lines.of(path), fmt.Sprintf("%s must be %s, not %s", name(path), must, describe(got))})
}

// unknown records a key that nobody reads, and the one that was probably meant.
func (d *decoder) unknown(parent []string, key string, known []string) {
	path := append(slices.Clone(parent), key)
	text := name(path) + " is not a known key"
	switch near := nearest(key, known); {
	case near != "":
		text += "; did you mean " + name(append(slices.Clone(parent), near)) + "?"
	case len(known) > 0:
		text += "; known here: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	}
	d.problems = append(d.problems, problem{d.lines.of(path), text})
}

// decode sets target, a settable value, from what the file holds at path.
func (d *decoder) decode(path []string, value any, target reflect.Value) {
	if target.Kind() == reflect.Pointer {
		fresh := reflect.New(target.Type().Elem())
		if !target.IsNil() {
			fresh.Elem().Set(target.Elem())
		}
		d.decode(path, value, fresh.Elem())
		target.Set(fresh)
		return
	}
	switch {
	case target.Type() == durationType:
		d.duration(path, value, target)
	case reflect.PointerTo(target.Type()).Implements(textType):
		d.text(path, value, target.Addr().Interface().(encoding.TextUnmarshaler))
	case target.Kind() == reflect.Struct:
		d.object(path, value, target)
	case target.Kind() == reflect.Map:
		d.mapping(path, value, target)
	case target.Kind() == reflect.Slice:
		d.list(path, value, target)
	default:
		d.scalar(path, value, target)
	}
}

func (d *decoder) duration(path []string, value any, target reflect.Value) {
	text, ok := value.(string)
	parsed, err := time.ParseDuration(text)
	if !ok || err != nil {
		d.wrong(path, `a duration with a unit, such as "30s" or "5m"`, value)
		return
	}
	target.SetInt(int64(parsed))
}

func (d *decoder) text(path []string, value any, target encoding.TextUnmarshaler) {
	text, ok := value.(string)
	if !ok {
		d.wrong(path, "text in quotes", value)
		return
	}
	if err := target.UnmarshalText([]byte(text)); err != nil {
		d.problems = append(d.problems, problem{d.lines.of(path), fmt.Sprintf("%s is not valid: %v", name(path), err)})
	}
}

// object reads keys into the fields of a struct. Nothing at all, as in a section whose keys are all commented out, is an
// empty object.
func (d *decoder) object(path []string, value any, target reflect.Value) {
	if value == nil {
		return
	}
	keys, ok := value.(map[string]any)
	if !ok {
		d.wrong(path, "a group of keys", value)
		return
	}
	known := fields(target)
	for _, key := range sortedKeys(keys) {
		field, ok := known[key]
		if !ok {
			d.unknown(path, key, sortedKeys(known))
			continue
		}
		d.decode(append(slices.Clone(path), key), keys[key], field)
	}
}

// mapping merges the file's entries into a copy of the default, so that a default shared with other code is not written to.
func (d *decoder) mapping(path []string, value any, target reflect.Value) {
	if value == nil {
		return
	}
	keys, ok := value.(map[string]any)
	if !ok || target.Type().Key().Kind() != reflect.String {
		d.wrong(path, "a group of keys", value)
		return
	}
	merged := reflect.MakeMap(target.Type())
	for iter := target.MapRange(); iter.Next(); {
		merged.SetMapIndex(iter.Key(), iter.Value())
	}
	for _, key := range sortedKeys(keys) {
		mapKey := reflect.ValueOf(key).Convert(target.Type().Key())
		element := reflect.New(target.Type().Elem()).Elem()
		if current := merged.MapIndex(mapKey); current.IsValid() {
			element.Set(current)
		}
		d.decode(append(slices.Clone(path), key), keys[key], element)
		merged.SetMapIndex(mapKey, element)
	}
	target.Set(merged)
}

func (d *decoder) list(path []string, value any, target reflect.Value) {
	if value == nil {
		return
	}
	elements, ok := value.([]any)
	if !ok {
		d.wrong(path, "a list", value)
		return
	}
	out := reflect.MakeSlice(target.Type(), len(elements), len(elements))
	for i, element := range elements {
		d.decode(append(slices.Clone(path), index(i)), element, out.Index(i))
	}
	target.Set(out)
}

// scalar sets text, a truth value or a number. Nothing is converted from one kind to another: a port in quotes or a bare yes
// is a mistake that is better said than guessed at.
func (d *decoder) scalar(path []string, value any, target reflect.Value) {
	switch target.Kind() {
	case reflect.String:
		if text, ok := value.(string); ok {
			target.SetString(text)
			return
		}
		d.wrong(path, "text in quotes", value)
	case reflect.Bool:
		if truth, ok := value.(bool); ok {
			target.SetBool(truth)
			return
		}
		d.wrong(path, "true or false", value)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.integer(path, value, target)
	case reflect.Float32, reflect.Float64:
		d.float(path, value, target)
	case reflect.Interface:
		if value != nil {
			target.Set(reflect.ValueOf(value))
		}
	default:
		d.problems = append(d.problems, problem{0, fmt.Sprintf("%s cannot be configured: its type is %s", name(path), target.Type())})
	}
}

func (d *decoder) integer(path []string, value any, target reflect.Value) {
	if target.CanInt() {
		if n, ok := asInt(value); ok && !target.OverflowInt(n) {
			target.SetInt(n)
			return
		}
		d.wrong(path, "a whole number that fits", value)
		return
	}
	if n, ok := value.(uint64); ok && !target.OverflowUint(n) {
		target.SetUint(n)
		return
	}
	if n, ok := asInt(value); ok && n >= 0 && !target.OverflowUint(uint64(n)) {
		target.SetUint(uint64(n))
		return
	}
	d.wrong(path, "a whole number of 0 or more that fits", value)
}

func (d *decoder) float(path []string, value any, target reflect.Value) {
	f, ok := value.(float64)
	if n, whole := asInt(value); whole {
		f, ok = float64(n), true
	}
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) || target.OverflowFloat(f) {
		d.wrong(path, "a number", value)
		return
	}
	target.SetFloat(f)
}

func asInt(value any) (int64, bool) {
	switch n := value.(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
}

// fields returns the settable fields of a struct by their keys.
func fields(v reflect.Value) map[string]reflect.Value {
	known := map[string]reflect.Value{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		key := field.Tag.Get(tag)
		switch {
		case field.Anonymous && key == "" && field.Type.Kind() == reflect.Struct:
			for name, inner := range fields(v.Field(i)) {
				known[name] = inner
			}
		case key != "" && key != "-" && field.IsExported():
			known[key] = v.Field(i)
		}
	}
	return known
}
