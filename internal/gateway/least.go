package gateway

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// least is the smallest number that a field of a body may hold where it is given, by its
// tag min: a zero that is written down is not the zero of a field that is left out.
func least(f reflect.StructField) (min int64, ok bool) {
	min, err := strconv.ParseInt(f.Tag.Get("min"), 10, 64)
	return min, err == nil
}

// memberName is what a field is called in JSON.
func memberName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// checkLeast refuses numbers of a body, which was read into a value of the type, that are
// too small. at is where in the whole body it stands.
func checkLeast(t reflect.Type, body []byte, at string) error {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct {
		var items []json.RawMessage
		if json.Unmarshal(body, &items) != nil {
			return nil
		}
		at = strings.TrimSuffix(at, ".")
		for i, item := range items {
			if err := checkLeast(t.Elem(), item, at+"["+strconv.Itoa(i)+"]."); err != nil {
				return err
			}
		}
		return nil
	}
	var members map[string]json.RawMessage
	if t.Kind() != reflect.Struct && t.Kind() != reflect.Map || json.Unmarshal(body, &members) != nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(members)) {
		value := members[key]
		if t.Kind() == reflect.Map {
			if err := checkLeast(t.Elem(), value, at+key+"."); err != nil {
				return err
			}
			continue
		}
		fields := reflect.VisibleFields(t)
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return strings.EqualFold(memberName(f), key) })
		if i < 0 {
			continue
		}
		if err := checkLeast(fields[i].Type, value, at+key+"."); err != nil {
			return err
		}
		if min, ok := least(fields[i]); ok {
			if n, err := strconv.ParseInt(string(value), 10, 64); err == nil && n < min {
				return invalid("%s%s must be at least %d", at, key, min)
			}
		}
	}
	return nil
}
