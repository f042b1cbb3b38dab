package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// decode is [json.Unmarshal], but a number in an interface is a [json.Number], with all
// its digits.
func decode(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the value")
	}
	return nil
}

func exact(data []byte) (v any, err error) {
	err = decode(data, &v)
	return v, err
}

// settle adds the defaults of s to v, and writes integers as Go reads them: JSON has
// 1.0 and 1e3, too. It reports whether v is another one now. Unlike the validator's own
// function for defaults it makes no objects to put them in.
func settle(v *any, s *jsonschema.Schema) (changed bool) {
	if s == nil {
		return false
	}
	switch w := (*v).(type) {
	case json.Number:
		if s.Type == "integer" || slices.Contains(s.Types, "integer") {
			if n, ok := integral(string(w)); ok {
				*v, changed = json.Number(n), true
			}
		}
	case []any:
		for i := range w {
			changed = settle(&w[i], s.Items) || changed
		}
	case map[string]any:
		for name, p := range s.Properties {
			if _, ok := w[name]; !ok && p.Default != nil {
				if d, err := exact(p.Default); err == nil {
					w[name], changed = d, true
				}
			}
		}
		for name, item := range w {
			p := s.Properties[name]
			if p == nil {
				p = s.AdditionalProperties
			}
			if settle(&item, p) {
				w[name], changed = item, true
			}
		}
	}
	return changed
}

// integral is a number with a fraction or an exponent as an integer, if it is one that
// may fit in 64 bits.
func integral(number string) (string, bool) {
	mantissa, exponent := number, 0
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		n, err := strconv.Atoi(number[i+1:])
		if err != nil {
			return "", false
		}
		mantissa, exponent = number[:i], n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if mantissa == number && fraction == "" {
		return "", false // as it should be
	}
	whole, negative := strings.CutPrefix(whole, "-")
	digits := whole + fraction
	point := len(whole) + exponent // in digits
	short := strings.TrimLeft(digits, "0")
	point -= len(digits) - len(short)
	if short = strings.TrimRight(short, "0"); short == "" {
		return "0", true
	}
	if point < len(short) || point > 20 {
		return "", false
	}
	short += strings.Repeat("0", point-len(short))
	if negative {
		short = "-" + short
	}
	return short, true
}

// natives is a copy of v with numbers as the validator reads them, which takes a
// [json.Number] for a string.
func natives(v any) any {
	switch v := v.(type) {
	case json.Number:
		return native(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = natives(v[i])
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, item := range v {
			all[name] = natives(item)
		}
		return all
	}
	return v
}

// native is a number as an integer of 64 bits, or else as the nearest float.
func native(n json.Number) any {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return u
	}
	f, _ := n.Float64()
	return min(max(f, -math.MaxFloat64), math.MaxFloat64)
}

// resolved is a schema of a tool, ready to validate.
func resolved(schema any) (*jsonschema.Schema, *jsonschema.Resolved, error) {
	s, ok := schema.(*jsonschema.Schema)
	if !ok {
		data, err := json.Marshal(schema)
		if err != nil {
			return nil, nil, err
		}
		s = new(jsonschema.Schema)
		if err := json.Unmarshal(data, s); err != nil {
			return nil, nil, fmt.Errorf("schema: %w", err)
		}
	}
	r, err := s.Resolve(nil)
	return s, r, err
}
