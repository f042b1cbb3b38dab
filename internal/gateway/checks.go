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

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
)

const (
	maxForks  = 10000
	maxKeep   = 1000
	maxBefore = 64
)

// clip bounds what is repeated of what somebody wrote.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// duration reads one of a request: zero where it is not given, negative for
// "0s", which is none.
func duration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, invalid("%s must be a duration like 90s, 30m or 2h, or 0s for none; %q is none", field, clip(text))
	}
	if d == 0 {
		return -1, nil
	}
	return d, nil
}

// A spanReader reads durations of a request and remembers the first that is
// wrong.
type spanReader struct{ err error }

func (r *spanReader) read(field, text string) time.Duration {
	d, err := duration(field, text)
	if r.err == nil {
		r.err = err
	}
	return d
}

// autosnapshot reads a ring to rewind to; nil is the config's.
func autosnapshot(in *api.Autosnapshot) (*config.Autosnapshot, error) {
	if in == nil {
		return nil, nil
	}
	switch {
	case in.Every < 0:
		return nil, invalid("autosnapshot.every must not be negative")
	case in.Keep < 0 || in.Keep > maxKeep:
		return nil, invalid("autosnapshot.keep must be a number from 1 to %d", maxKeep)
	case len(in.Before) > maxBefore:
		return nil, invalid("autosnapshot.before has %d patterns and may have %d", len(in.Before), maxBefore)
	}
	for _, p := range in.Before {
		if p == "" || !identity.ValidPattern(p) {
			return nil, invalid("autosnapshot.before: %q is no tool like server__tool, nor a pattern of them", clip(p))
		}
	}
	out := &config.Autosnapshot{Every: in.Every, Before: in.Before, Keep: in.Keep}
	if out.Keep == 0 {
		out.Keep = 8
	}
	return out, nil
}

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
