// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// misfits says in the words of the configuration why data does not fit into a value; the decoder
// itself reports byte values. Nil means that nothing was found.
func misfits(data []byte, into any) error {
	var found any
	if codec.NewDecoderBytes(data, configHandle()).Decode(&found) != nil {
		return nil
	}
	typ := reflect.TypeOf(into)
	if typ == nil {
		return nil
	}
	return errors.Join(misfit("", found, typ)...)
}

func misfit(path string, value any, typ reflect.Type) []error {
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if value == nil {
		return nil
	}
	switch typ.Kind() {
	case reflect.Struct, reflect.Map:
		return misfitMap(path, value, typ)
	case reflect.Slice, reflect.Array:
		return misfitList(path, value, typ)
	case reflect.String:
		if _, ok := value.(string); !ok {
			return wrong(path, value, "is not text")
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			return wrong(path, value, "is not true or false")
		}
	case reflect.Interface:
	default:
		if reason := misfitNumber(value, typ); reason != "" {
			return wrong(path, value, reason)
		}
	}
	return nil
}

func misfitMap(path string, value any, typ reflect.Type) (faults []error) {
	entries, ok := value.(map[string]any)
	if !ok {
		return wrong(path, value, "is not a map")
	}
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		field := typ
		if typ.Kind() == reflect.Struct {
			if field = fieldType(typ, key); field == nil {
				continue
			}
		} else {
			field = typ.Elem()
		}
		name := key
		if path != "" {
			name = path + "." + key
		}
		faults = append(faults, misfit(name, entries[key], field)...)
	}
	return faults
}

func fieldType(typ reflect.Type, key string) reflect.Type {
	for i := range typ.NumField() {
		if typ.Field(i).Tag.Get("codec") == key {
			return typ.Field(i).Type
		}
	}
	return nil
}

func misfitList(path string, value any, typ reflect.Type) (faults []error) {
	items, ok := value.([]any)
	if !ok {
		return wrong(path, value, "is not a list")
	}
	for i, item := range items {
		faults = append(faults, misfit(path+"["+strconv.Itoa(i)+"]", item, typ.Elem())...)
	}
	return faults
}

// misfitNumber is why a value does not fit into a number of a type, or "".
func misfitNumber(value any, typ reflect.Type) string {
	whole := typ.Kind() >= reflect.Int && typ.Kind() <= reflect.Uintptr
	number := reflect.ValueOf(value)
	switch {
	case !number.CanInt() && !number.CanUint() && !number.CanFloat():
		if whole {
			return "is not a whole number"
		}
		return "is not a number"
	case !whole:
		return ""
	case number.CanFloat():
		return "is not a whole number"
	}
	target := reflect.New(typ).Elem()
	switch {
	case target.CanUint() && number.CanInt() && number.Int() < 0:
		return "is negative"
	case target.CanUint() && number.CanInt():
		return tooLarge(target.OverflowUint(uint64(number.Int())))
	case target.CanUint():
		return tooLarge(target.OverflowUint(number.Uint()))
	case number.CanInt():
		return tooLarge(target.OverflowInt(number.Int()))
	default:
		return tooLarge(number.Uint() > math.MaxInt64 || target.OverflowInt(int64(number.Uint())))
	}
}

func tooLarge(is bool) string {
	if is {
		return "is too large"
	}
	return ""
}

func wrong(path string, value any, reason string) []error {
	if path != "" {
		path += ": "
	}
	return []error{fmt.Errorf("%s%s %s", path, brief(value), reason)}
}

// brief shows scalars only, and not much of them.
func brief(value any) string {
	switch v := value.(type) {
	case string:
		if len(v) > 40 {
			v = v[:40] + "…"
		}
		return strconv.Quote(v)
	case []any:
		return "a list"
	case map[string]any:
		return "a map"
	default:
		return fmt.Sprint(value)
	}
}
