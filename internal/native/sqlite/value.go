package sqlite

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/ncruces/go-sqlite3"
)

// How values are written in JSON, and read as parameters:
//
//	INTEGER            a number, all digits
//	REAL               a number with a point or an exponent
//	infinite REAL      {"real": "Infinity"}, {"real": "-Infinity"}
//	TEXT               a string
//	TEXT, not UTF-8    {"text_base64": "..."}
//	BLOB               {"base64": "..."}
//	NULL               null

// appendValue writes a column of the current row.
func appendValue(b []byte, s *sqlite3.Stmt, col int) []byte {
	switch s.ColumnType(col) {
	case sqlite3.INTEGER:
		return strconv.AppendInt(b, s.ColumnInt64(col), 10)
	case sqlite3.FLOAT:
		return appendReal(b, s.ColumnFloat(col))
	case sqlite3.TEXT:
		if text := s.ColumnRawText(col); utf8.Valid(text) {
			return appendString(b, string(text))
		} else {
			return appendBase64(b, "text_base64", text)
		}
	case sqlite3.BLOB:
		return appendBase64(b, "base64", s.ColumnRawBlob(col))
	}
	return append(b, "null"...)
}

func appendReal(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, `{"real":"Infinity"}`...)
	case math.IsInf(f, -1):
		return append(b, `{"real":"-Infinity"}`...)
	}
	return append(b, formatReal(f)...)
}

// formatReal writes a finite number so that every reader takes it for a real number,
// and the same one.
func formatReal(f float64) string {
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	s := strconv.FormatFloat(f, format, -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func appendBase64(b []byte, kind string, data []byte) []byte {
	b = append(b, `{"`...)
	b = append(b, kind...)
	b = append(b, `":"`...)
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, `"}`...)
}

func appendString(b []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.Encode(s) // of a string it can't fail
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// params are the values for the ? and :name of statements: a list or by name.
type params struct {
	list  []any
	named map[string]any
	used  map[string]bool
	next  int // of list
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *params) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return err
	}
	*p = params{}
	switch v := v.(type) {
	case nil:
	case []any:
		for i, e := range v {
			x, err := parameter(e)
			if err != nil {
				return fmt.Errorf("params[%d] %w", i, err)
			}
			p.list = append(p.list, x)
		}
	case map[string]any:
		p.named, p.used = map[string]any{}, map[string]bool{}
		for k, e := range v {
			x, err := parameter(e)
			if err != nil {
				return fmt.Errorf("params.%s %w", k, err)
			}
			p.named[strings.TrimLeft(k, ":@$")] = x
		}
	default:
		return errors.New("params must be a list of values, or an object of names and values")
	}
	return nil
}

// parameter makes the value of SQLite that a JSON value stands for.
func parameter(v any) (any, error) {
	switch v := v.(type) {
	case nil, string:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case json.Number:
		if !strings.ContainsAny(v.String(), ".eE") {
			n, err := strconv.ParseInt(v.String(), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("is an integer beyond 64 bits: %s; give it as a string, or with an exponent", v)
			}
			return n, nil
		}
		f, err := v.Float64()
		if err != nil {
			return nil, fmt.Errorf("is a number beyond what a REAL can hold: %s", v)
		}
		return f, nil
	case map[string]any:
		if len(v) == 1 {
			for kind, e := range v {
				if s, ok := e.(string); ok {
					return tagged(kind, s)
				}
			}
		}
	}
	return nil, errors.New(`must be null, true, false, a number, a string, {"base64": "..."}, {"text_base64": "..."} or {"real": "Infinity"}`)
}

func tagged(kind, s string) (any, error) {
	switch kind {
	case "base64", "text_base64":
		data, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			return nil, fmt.Errorf("is not base64: %w", err)
		}
		if kind == "base64" {
			return data, nil
		}
		return string(data), nil
	case "real":
		if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) {
			return f, nil
		}
		return nil, fmt.Errorf("is not a real number: %q", s)
	}
	return nil, fmt.Errorf(`has the unknown kind %q; there are "base64", "text_base64" and "real"`, kind)
}

// bind gives a statement its values. Of a list each statement takes the next.
func (p *params) bind(s *sqlite3.Stmt) error {
	n := s.BindCount()
	if n == 0 {
		return nil
	}
	if p == nil || p.named == nil {
		var left []any
		if p != nil {
			left = p.list[p.next:]
		}
		if len(left) < n {
			return fmt.Errorf("the statement has %d parameters, and %d values are left in params: %s", n, len(left), brief(s.SQL()))
		}
		for i := range n {
			if err := bind(s, i+1, left[i]); err != nil {
				return fmt.Errorf("parameter %d: %w", i+1, err)
			}
		}
		p.next += n
		return nil
	}
	for i := 1; i <= n; i++ {
		name := s.BindName(i)
		if name == "" || name[0] == '?' {
			return fmt.Errorf("parameter %d of the statement has no name; give params as a list: %s", i, brief(s.SQL()))
		}
		v, ok := p.named[name[1:]]
		if !ok {
			return fmt.Errorf("params has no value for %s", name)
		}
		p.used[name[1:]] = true
		if err := bind(s, i, v); err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return nil
}

func bind(s *sqlite3.Stmt, i int, v any) error {
	switch v := v.(type) {
	case int64:
		return s.BindInt64(i, v)
	case float64:
		return s.BindFloat(i, v)
	case string:
		return s.BindText(i, v)
	case []byte:
		return s.BindBlob(i, v)
	}
	return s.BindNull(i)
}

// rest complains about values that no statement took.
func (p *params) rest() error {
	if p == nil {
		return nil
	}
	if n := len(p.list) - p.next; n > 0 {
		return fmt.Errorf("%d of %d values in params are not used by any statement", n, len(p.list))
	}
	for name := range p.named {
		if !p.used[name] {
			return fmt.Errorf("params.%s is not used by any statement", name)
		}
	}
	return nil
}

func brief(sql string) string {
	sql = strings.Join(strings.Fields(sql), " ")
	if len(sql) > 60 {
		sql = strings.ToValidUTF8(sql[:60], "") + "..."
	}
	return sql
}
