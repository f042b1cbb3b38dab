package blueprint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// mostFilled bounds all texts of one run, after its placeholders are filled in.
const mostFilled = 8 << 20

// filler fills in what the coordinator knows. It only ever appends values to texts: it
// never reads what it has written.
type filler struct {
	values  map[string]map[string]string // by prefix and key
	params  map[string]any
	env     map[string]bool // variables that were used
	scope   map[string]bool
	left    int
	missing []config.Problem
	server  bool // whether one of them is missing below mcp_servers
	full    bool
}

func newFiller(in Input, params map[string]any, scope map[string]string) *filler {
	f := &filler{params: params, env: map[string]bool{}, scope: map[string]bool{}, left: mostFilled}
	texts := make(map[string]string, len(params))
	for key, v := range params {
		texts[key] = textual(v)
	}
	f.values = map[string]map[string]string{
		prefixParams: texts, prefixScope: scope, prefixEnv: in.Env,
		prefixRuntime: {"run_id": in.Runtime.Run, "session_id": in.Runtime.Session},
	}
	return f
}

// textual is a parameter in a text: a string as it is, anything else as JSON.
func textual(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// take counts the bytes of a text, and refuses more than there may be.
func (f *filler) take(at spot, n int) bool {
	if f.left -= n; f.left >= 0 {
		return true
	}
	if !f.full {
		f.full = true
		f.missing = append(f.missing, at.problem("with its values a run's blueprint is larger than %d MiB; give shorter parameters", mostFilled>>20))
	}
	return false
}

func (f *filler) text(t Text) Pending {
	var p Pending
	var plain strings.Builder
	flush := func() {
		if plain.Len() > 0 {
			p.parts = append(p.parts, pendingPart{text: plain.String()})
			plain.Reset()
		}
	}
	for _, part := range t.parts {
		switch {
		case part.kept != "":
			flush()
			p.parts = append(p.parts, pendingPart{kept: part.kept})
		case part.prefix == prefixRunner:
			flush()
			p.parts = append(p.parts, pendingPart{runner: part.key})
		default:
			v := part.text
			if part.prefix != "" {
				v = f.value(part)
			}
			if !f.take(part.at, len(v)) {
				return Pending{}
			}
			plain.WriteString(v)
		}
	}
	flush()
	return p
}

// entry is text for what a server is started with: its start fills in ${workspace} and
// ${state.NAME} wherever they stand, so that no value may make one.
func (f *filler) entry(t Text) Pending {
	p := f.text(t)
	if what := p.startsOther(nil); what != "" && len(t.parts) > 0 {
		f.fail(t.placed(), "%s", what)
	}
	return p
}

// placed is where a text has a placeholder.
func (t Text) placed() spot {
	for _, p := range t.parts {
		if p.prefix != "" {
			return p.at
		}
	}
	return spot{}
}

// startsOther says what is wrong with a text of a server in which a start would fill in
// more than the blueprint has. Without values it looks at what is known already.
func (p Pending) startsOther(values map[string]string) string {
	var want []string
	var b strings.Builder
	for _, part := range p.parts {
		switch {
		case part.kept != "":
			want = append(want, part.kept)
			b.WriteString("${" + part.kept + "}")
		case part.runner != "":
			if values == nil {
				b.WriteByte(0) // no value begins or ends with it
			}
			b.WriteString(values[part.runner])
		default:
			b.WriteString(part.text)
		}
	}
	if slices.Equal(config.AtStart(b.String()), want) {
		return ""
	}
	return "a value gives the text ${workspace} or ${state.NAME}, which the start of the server would fill in; give another value"
}

func (f *filler) tree(t Tree, text func(Text) Pending, typed bool) PendingTree {
	switch t.kind {
	case treeText:
		if v, ok := f.whole(*t.text); ok && typed {
			return PendingTree{Value: v}
		}
		p := text(*t.text)
		return PendingTree{Text: &p}
	case treeList:
		out := PendingTree{List: make([]PendingTree, len(t.list))}
		for i, item := range t.list {
			out.List[i] = f.tree(item, text, typed)
		}
		return out
	case treeMap:
		out := PendingTree{Map: make(map[string]PendingTree, len(t.fields))}
		for key, v := range t.fields {
			out.Map[key] = f.tree(v, text, typed)
		}
		return out
	case treeScalar:
		b, err := json.Marshal(t.value)
		if err != nil {
			f.missing = append(f.missing, config.Problem{Message: fmt.Sprintf("a value can't be written as JSON: %v", err)})
		}
		return PendingTree{Value: b}
	}
	return PendingTree{}
}

// whole is a parameter that is all of a text and no text itself.
func (f *filler) whole(t Text) (json.RawMessage, bool) {
	if len(t.parts) != 1 || t.parts[0].prefix != prefixParams {
		return nil, false
	}
	v, ok := f.params[t.parts[0].key]
	if _, text := v.(string); !ok || text {
		return nil, false
	}
	b, err := json.Marshal(v)
	return b, err == nil && f.take(t.parts[0].at, len(b))
}

func (f *filler) texts(m map[string]Text) map[string]Pending {
	out := make(map[string]Pending, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out[key] = f.text(m[key])
	}
	return out
}

func (f *filler) value(p part) string {
	v, ok := f.values[p.prefix][p.key]
	if !ok {
		f.fail(p.at, "%s", p.lacking())
		return ""
	}
	if strings.ContainsRune(v, 0) {
		f.fail(p.at, "%s: the value contains a NUL character", p.text)
		return ""
	}
	switch p.prefix {
	case prefixEnv:
		f.env[p.key] = true
	case prefixScope:
		f.scope[p.key] = true
	}
	return v
}

func (f *filler) fail(at spot, format string, args ...any) {
	f.server = f.server || strings.HasPrefix(at.path, "mcp_servers.")
	f.missing = append(f.missing, at.problem(format, args...))
}

// lacking says that a placeholder has no value.
func (p part) lacking() string {
	switch p.prefix {
	case prefixParams:
		return fmt.Sprintf("%s: the run has no parameter %q; give it, or a default in the schema of parameters", p.text, p.key)
	case prefixScope:
		return fmt.Sprintf("%s: the run has no scope value %q; give it, or a default under scope", p.text, p.key)
	case prefixEnv:
		return fmt.Sprintf("%s: there is no variable %q for blueprints; set it where the gateway starts, and name it in agents.env of the config", p.text, p.key)
	}
	return fmt.Sprintf("%s has no value", p.text)
}

// runnerFiller fills in what a runner knows.
type runnerFiller struct {
	values map[string]string
	left   int
	entry  bool // a server is started with the text
	wrong  []string
}

func (r *runnerFiller) fail(path, format string, args ...any) {
	r.wrong = append(r.wrong, path+": "+fmt.Sprintf(format, args...))
}

func (r *runnerFiller) texts(m map[string]Pending, path string) map[string]string {
	out := make(map[string]string, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out[key] = r.text(m[key], path+"."+key)
	}
	return out
}

func (r *runnerFiller) text(p Pending, path string) string {
	if r.entry {
		if what := p.startsOther(r.values); what != "" {
			r.fail(path, "%s", what)
		}
	}
	var b strings.Builder
	for _, part := range p.parts {
		v := part.text
		switch {
		case part.kept != "":
			v = "${" + part.kept + "}"
		case part.runner != "":
			value, ok := r.values[part.runner]
			if !ok {
				r.fail(path, "this runner has no value for ${runner.%s}", part.runner)
			}
			v = value
		}
		if r.left -= len(v); r.left < 0 {
			r.fail(path, "with the runner's values the blueprint is larger than %d MiB", mostFilled>>20)
			return ""
		}
		b.WriteString(v)
	}
	return b.String()
}
