package gateway

import (
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Queries are read into structs whose fields say what may stand in them:
//
//	query    the name of the parameter
//	doc      what it is, for the document
//	min, max bounds of a number
//	default  of a number that is not given
//
// A []string may be repeated, everything else may not. What is empty is as if
// it were not there.

// A param is one parameter of a query.
type param struct {
	name, doc string
	min, max  int64
	fallback  string
	index     int
	of        reflect.Type
}

// paramsOf lists the parameters of a query's type.
func paramsOf(t reflect.Type) []param {
	var out []param
	for i := range t.NumField() {
		f := t.Field(i)
		p := param{name: f.Tag.Get("query"), doc: f.Tag.Get("doc"), fallback: f.Tag.Get("default"), index: i, of: f.Type}
		p.min, _ = strconv.ParseInt(f.Tag.Get("min"), 10, 64)
		p.max, _ = strconv.ParseInt(f.Tag.Get("max"), 10, 64)
		out = append(out, p)
	}
	return out
}

// checkQuery refuses parameters that are not known, and those that stand more
// than once where that makes no sense.
func checkQuery(query url.Values, known []param) error {
	for name, values := range query {
		i := slices.IndexFunc(known, func(p param) bool { return p.name == name })
		if i < 0 {
			if len(known) == 0 {
				return invalid("there is no parameter %q here, nor any other", name)
			}
			return invalid("there is no parameter %q here; there are %s", name, names(known))
		}
		if len(values) > 1 && known[i].of.Kind() != reflect.Slice {
			return invalid("%s stands more than once", name)
		}
	}
	return nil
}

func names(params []param) string {
	all := make([]string, len(params))
	for i, p := range params {
		all[i] = p.name
	}
	return strings.Join(all, ", ")
}

// readQuery reads a query into a pointer to its struct.
func readQuery(query url.Values, into any) error {
	v := reflect.ValueOf(into).Elem()
	params := paramsOf(v.Type())
	if err := checkQuery(query, params); err != nil {
		return err
	}
	for _, p := range params {
		field := v.Field(p.index)
		if p.of.Kind() == reflect.Slice {
			field.Set(reflect.ValueOf(query[p.name]))
			continue
		}
		text := query.Get(p.name)
		if text == "" {
			text = p.fallback
		}
		if text == "" {
			continue
		}
		if err := p.read(field, text); err != nil {
			return err
		}
	}
	return nil
}

func (p param) read(field reflect.Value, text string) error {
	switch {
	case p.of == reflect.TypeFor[time.Time]():
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return invalid("%s must be a time like 2026-01-31T12:00:00Z", p.name)
		}
		field.Set(reflect.ValueOf(at))
	case p.of.Kind() == reflect.Bool:
		is, err := strconv.ParseBool(text)
		if err != nil {
			return invalid("%s must be true or false", p.name)
		}
		field.SetBool(is)
	case p.of.Kind() == reflect.Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < p.min || n > p.max {
			return invalid("%s must be a number from %d to %d", p.name, p.min, p.max)
		}
		field.SetInt(n)
	default:
		field.SetString(text)
	}
	return nil
}
