package files

import (
	"encoding/json"
	"errors"
	"fmt"
)

// args are the arguments of a call. Reading one that is missing or of the wrong
// type leaves an error in err, the first one; handlers read all before they do
// anything. Keys are exact, unlike those of a struct that JSON is read into.
type args struct {
	values map[string]json.RawMessage
	err    error
}

func newArgs(raw json.RawMessage) (*args, error) {
	a := &args{}
	if len(raw) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(raw, &a.values); err != nil {
		return nil, errors.New("they are not a JSON object")
	}
	return a, nil
}

// read sets into when the key is there, and says whether it is.
func (a *args) read(key, kind string, into any) bool {
	raw, ok := a.values[key]
	if !ok {
		return false
	}
	if string(raw) == "null" || json.Unmarshal(raw, into) != nil {
		a.fail(fmt.Errorf("%s must be %s", key, kind))
	}
	return true
}

func (a *args) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

func (a *args) required(key, kind string, into any) {
	if !a.read(key, kind, into) {
		a.fail(fmt.Errorf("%s is required", key))
	}
}

func (a *args) text(key string) (s string) {
	a.required(key, "a string", &s)
	return s
}

func (a *args) number(key string) (n float64) {
	a.read(key, "a number", &n)
	return n
}

func (a *args) flag(key string) (b bool) {
	a.read(key, "true or false", &b)
	return b
}

// texts reads a list; JSON null is no string in it either.
func (a *args) texts(key string) []string {
	var list []*string
	a.read(key, "a list of strings", &list)
	out := make([]string, 0, len(list))
	for _, s := range list {
		if s == nil {
			a.fail(fmt.Errorf("%s must be a list of strings", key))
			return nil
		}
		out = append(out, *s)
	}
	return out
}

func (a *args) has(key string) bool {
	_, ok := a.values[key]
	return ok
}

type edit struct{ old, new string }

func (a *args) edits(key string) []edit {
	const kind = "a list of objects with oldText and newText"
	var list []map[string]json.RawMessage
	a.required(key, kind, &list)
	out := make([]edit, 0, len(list))
	for i, m := range list {
		one := args{values: m}
		e := edit{one.text("oldText"), one.text("newText")}
		if one.err != nil {
			a.fail(fmt.Errorf("%s[%d]: %w", key, i, one.err))
		}
		out = append(out, e)
	}
	return out
}
