package blueprint

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// Prefixes of placeholders.
const (
	prefixParams  = "params"
	prefixScope   = "scope"
	prefixEnv     = "env"
	prefixRuntime = "runtime"
	prefixRunner  = "runner"
)

var prefixes = []string{prefixParams, prefixScope, prefixEnv, prefixRuntime, prefixRunner}

// runtimeKeys are all that ${runtime.KEY} may name.
var runtimeKeys = []string{"run_id", "session_id"}

// RunnerKeys are what the gateway's own runner fills in for ${runner.KEY}.
var RunnerKeys = []string{"orchestrator_mcp_url", "id", "hostname"}

// mostPlaceholders bounds those of one text.
const mostPlaceholders = 1000

var keyPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

// A Text is a text of a blueprint, taken apart at its placeholders once, when it is read.
// To fill it in gives a Pending, which has no placeholders but those of a runner; values
// become plain text in it, and no function looks for placeholders in a text again.
type Text struct{ parts []part }

// part is plain text, or one placeholder.
type part struct {
	text        string // plain text; of a placeholder as it is written
	prefix, key string // empty for plain text
	kept        string // what a server's start fills in: workspace or state.NAME
	at          spot
}

// spot is where something stands in a blueprint.
type spot struct {
	file string
	pos  config.Pos
	path string // such as mcp_servers.github.headers.Authorization
}

func (s spot) problem(format string, args ...any) config.Problem {
	message := fmt.Sprintf(format, args...)
	if s.path != "" {
		message = s.path + ": " + message
	}
	return config.Problem{File: s.file, Line: s.pos.Line, Column: s.pos.Col, Message: message}
}

// Literal is a text without placeholders, whatever it looks like.
func Literal(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{[]part{{text: s}}}
}

// Empty reports whether there is no text.
func (t Text) Empty() bool { return len(t.parts) == 0 }

// Source is the text as a blueprint has it.
func (t Text) Source() string {
	var b strings.Builder
	for _, p := range t.parts {
		if p.prefix == "" && p.kept == "" {
			b.WriteString(strings.ReplaceAll(p.text, "${", "$${"))
		} else {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// literal is a text without placeholders.
func (t Text) literal() string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.text)
	}
	return b.String()
}

// placeholders are those that are filled in before a server starts.
func (t Text) placeholders() []part {
	return slices.DeleteFunc(slices.Clone(t.parts), func(p part) bool { return p.prefix == "" })
}

// kind says which placeholders a text may have.
type kind struct {
	atStart  bool // ${workspace} and ${state.NAME} of a server that starts
	noRunner bool // the coordinator itself needs the text
}

// A mistake is what is wrong at an offset of a text.
type mistake struct {
	offset int
	what   string
}

const escape = "; write $${ for a literal ${"

// parse takes a text apart. at is where a byte of it stands.
func parse(s string, k kind, at func(offset int) spot) (Text, []mistake) {
	var (
		t     Text
		wrong []mistake
		plain strings.Builder
		count int
	)
	flush := func() {
		if plain.Len() > 0 {
			t.parts = append(t.parts, part{text: plain.String()})
			plain.Reset()
		}
	}
	for i := 0; i < len(s); {
		dollar := strings.IndexByte(s[i:], '$')
		if dollar < 0 {
			plain.WriteString(s[i:])
			break
		}
		plain.WriteString(s[i : i+dollar])
		i += dollar
		switch {
		case strings.HasPrefix(s[i:], "$${"):
			plain.WriteString("${")
			i += 3
		case strings.HasPrefix(s[i:], "${"):
			end := strings.IndexByte(s[i:], '}')
			if end < 0 {
				return t, append(wrong, mistake{i, "${ has no closing brace" + escape})
			}
			whole := s[i : i+end+1]
			p, what := placeholder(whole, k)
			if count++; what == "" && count > mostPlaceholders {
				return t, append(wrong, mistake{i, fmt.Sprintf("has more than %d placeholders", mostPlaceholders)})
			}
			if what != "" {
				wrong = append(wrong, mistake{i, what})
			}
			flush()
			p.at = at(i)
			t.parts = append(t.parts, p)
			i += end + 1
		default:
			plain.WriteByte('$')
			i++
		}
	}
	flush()
	if k.atStart && len(wrong) == 0 {
		for _, p := range t.parts {
			if p.prefix == "" && p.kept == "" && len(config.AtStart(p.text)) > 0 {
				wrong = append(wrong, mistake{0, "holds ${workspace} or ${state.NAME} as plain text, which would be filled in all the same; write it another way"})
			}
		}
	}
	return t, wrong
}

// placeholder reads one with its braces, and says what is wrong with it.
func placeholder(whole string, k kind) (p part, what string) {
	p = part{text: whole}
	body := whole[2 : len(whole)-1]
	shown := config.Clip(whole)
	if names := config.AtStart(whole); len(names) == 1 && k.atStart {
		p.kept = names[0]
		return p, ""
	}
	prefix, key, dotted := strings.Cut(body, ".")
	switch {
	case !dotted && slices.Contains(prefixes, strings.SplitN(body, ":", 2)[0]) && strings.Contains(body, ":"):
		return p, fmt.Sprintf("%s: a dot comes after the prefix; write ${%s}", shown, strings.Replace(body, ":", ".", 1))
	case body == "workspace" || dotted && prefix == "state":
		return p, shown + " is known only in args, env and cwd of a server" + escape
	case !slices.Contains(prefixes, prefix) || !dotted:
		hint := ""
		if g := config.Nearest(prefix, prefixes); g != "" && dotted {
			hint = fmt.Sprintf("; did you mean ${%s.%s}?", g, key)
		}
		return p, fmt.Sprintf("%s is no placeholder here; there are ${%s.KEY}%s%s", shown, strings.Join(prefixes, ".KEY}, ${"), hint, escape)
	case !keyPattern.MatchString(key):
		return p, fmt.Sprintf("%s: %q can't be a key; use 1 to 128 letters, digits, dots, dashes and underscores", shown, config.Clip(key))
	case prefix == prefixRuntime && !slices.Contains(runtimeKeys, key):
		return p, fmt.Sprintf("%s: there are ${runtime.%s}", shown, strings.Join(runtimeKeys, "} and ${runtime."))
	case prefix == prefixRunner && k.noRunner:
		return p, shown + " is not known here: a runner fills it in, and this is used before there is one"
	}
	p.prefix, p.key = prefix, key
	return p, ""
}

// A Pending is a text whose placeholders are filled in, but for those of a runner. In JSON
// it is a string, or a list in which every string is plain text and every object stands
// for one placeholder, so that it stays what it is in a store.
type Pending struct{ parts []pendingPart }

type pendingPart struct {
	text   string
	runner string // key of a placeholder of the runner; empty for text
	kept   string // as in part
}

type pendingRef struct {
	Runner string `json:"runner,omitempty"`
	Kept   string `json:"start,omitempty"`
}

// MarshalJSON writes the text so that UnmarshalJSON reads the same.
func (p Pending) MarshalJSON() ([]byte, error) {
	if text, ok := p.plain(); ok {
		return json.Marshal(text)
	}
	list := make([]any, len(p.parts))
	for i, part := range p.parts {
		list[i] = part.text
		if part.runner != "" || part.kept != "" {
			list[i] = pendingRef{part.runner, part.kept}
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (p *Pending) UnmarshalJSON(b []byte) error {
	*p = Pending{}
	var text string
	if json.Unmarshal(b, &text) == nil {
		if text != "" {
			p.parts = []pendingPart{{text: text}}
		}
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("reading a text of a run: %w", err)
	}
	for _, raw := range list {
		var part pendingPart
		if err := json.Unmarshal(raw, &part.text); err != nil {
			var ref pendingRef
			if err := json.Unmarshal(raw, &ref); err != nil || (ref.Runner == "") == (ref.Kept == "") {
				return fmt.Errorf("reading a text of a run: %s is neither text nor a placeholder", config.Clip(string(raw)))
			}
			part.runner, part.kept = ref.Runner, ref.Kept
		}
		p.parts = append(p.parts, part)
	}
	return nil
}

// plain is the text, if nothing of it is left to fill in.
func (p Pending) plain() (string, bool) {
	switch {
	case len(p.parts) == 0:
		return "", true
	case len(p.parts) == 1 && p.parts[0].runner == "" && p.parts[0].kept == "":
		return p.parts[0].text, true
	}
	return "", false
}
