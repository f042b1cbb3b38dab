// Package settings reads the settings of a native server, which come from the
// config as a loose map, into that server's own struct, strictly: a key that is
// not known or a value of the wrong kind is an error that says what would be
// right.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Decode fills the struct that into points to. Its fields are named by their
// json tags; what the map does not mention keeps its value, so defaults are set
// before the call.
func Decode(from map[string]any, into any) error {
	v := reflect.ValueOf(into).Elem()
	fields := make(map[string]any, v.NumField())
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i).Addr().Interface()
	}
	for _, k := range slices.Sorted(maps.Keys(from)) {
		field, ok := fields[k]
		switch {
		case !ok && len(fields) == 0:
			return fmt.Errorf("settings.%s is not known; this server has no settings", k)
		case !ok:
			return fmt.Errorf("settings.%s is not known; there are %s", k, strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
		case from[k] == nil:
			return fmt.Errorf("settings.%s has no value; give one or leave the key out", k)
		}
		if err := set(field, from[k]); err != nil {
			return fmt.Errorf("settings.%s %w", k, err)
		}
	}
	return nil
}

func set(field, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("can't be read: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.DisallowUnknownFields()
	err = in.Decode(field)
	var te *json.UnmarshalTypeError
	switch {
	case errors.As(err, &te) && te.Field != "":
		return fmt.Errorf("has a wrong %s: it must be %s, not a %s", te.Field, kind(te.Type), te.Value)
	case errors.As(err, &te):
		// The value itself may be a secret.
		return fmt.Errorf("must be %s, not a %s", kind(reflect.TypeOf(field).Elem()), te.Value)
	case err != nil:
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return fmt.Errorf("has no %s; it has %s", name, strings.Join(names(reflect.TypeOf(field).Elem()), ", "))
		}
	}
	return err
}

// names are those of the fields of a struct.
func names(t reflect.Type) []string {
	var all []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func kind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Map:
		return "a map of strings"
	case reflect.Slice:
		return "a list of strings"
	case reflect.Struct:
		return "a map"
	}
	return "a " + t.String()
}

// Duration is a time span written as "30s" or "1m30s", or as a number of
// seconds.
type Duration time.Duration

// UnmarshalJSON implements [json.Unmarshaler].
func (d *Duration) UnmarshalJSON(data []byte) error {
	var seconds float64
	if err := json.Unmarshal(data, &seconds); err == nil {
		if math.Abs(seconds) > math.MaxInt64/float64(time.Second) {
			return fmt.Errorf("is too long: %s seconds", data)
		}
		*d = Duration(seconds * float64(time.Second))
		return nil
	}
	var s string
	if err := json.Unmarshal(data, &s); err == nil {
		if v, err := time.ParseDuration(s); err == nil {
			*d = Duration(v)
			return nil
		}
	}
	return errors.New(`must be a time span such as "30s", or a number of seconds`)
}
