package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
)

// jsonMistake says what is wrong with JSON in its own words and not in Go's.
func jsonMistake(err error) string {
	var (
		wrong  *json.UnmarshalTypeError
		syntax *json.SyntaxError
		when   *time.ParseError
	)
	switch {
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the JSON ends too early"
	case errors.As(err, &syntax):
		return fmt.Sprintf("not JSON: %v, at byte %d", err, syntax.Offset)
	case errors.As(err, &wrong):
		got := cmp.Or(jsonNames[wrong.Value], clip(strings.TrimPrefix(wrong.Value, "number ")))
		return fmt.Sprintf("%s must be %s, and is %s", cmp.Or(wrong.Field, "it"), jsonName(wrong.Type), got)
	case errors.As(err, &when), strings.HasPrefix(err.Error(), "Time.UnmarshalJSON"):
		return "a time must be like 2026-01-31T12:00:00Z"
	}
	return clip(strings.TrimPrefix(err.Error(), "json: ")) // an unknown field
}

// jsonNames is what is said of the kinds of JSON values.
var jsonNames = map[string]string{
	"string": "a string", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object",
}

// jsonName is the kind of JSON value that a type is read from.
func jsonName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonName(t.Elem())
	case reflect.Bool:
		return jsonNames["bool"]
	case reflect.String:
		return jsonNames["string"]
	case reflect.Float32, reflect.Float64:
		return jsonNames["number"]
	case reflect.Slice, reflect.Array:
		return jsonNames["array"]
	case reflect.Map, reflect.Struct:
		return jsonNames["object"]
	}
	return "a whole number"
}
