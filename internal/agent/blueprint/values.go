package blueprint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// validName checks what names something.
func validName(what string) func(o config.Object, key string, dst *string) {
	return func(o config.Object, key string, dst *string) {
		if n := o.Get(key); !config.AgentName(*dst) {
			o.Wrong(key, n, "%s can't name %s; use 1 to 64 letters, digits, dashes and underscores", n.Shown(), what)
		}
	}
}

var nameValue = config.Text("reviewer").Unless("that of the file").Then(validName("an agent"))

// plain complains about placeholders where none is filled in.
func plain(o config.Object, key string, dst *string) { plainNode(o, key, o.Get(key)) }

func plainNode(o config.Object, path string, n *config.Node) {
	for _, prefix := range prefixes {
		if i := strings.Index(n.Text, "${"+prefix+"."); i >= 0 && (i == 0 || n.Text[i-1] != '$') {
			o.Fail(n.Pos, "%s: %s is not filled in here; placeholders may stand in system_prompt, mcp_servers, env, executor_config and the arguments of hooks", path, "${"+prefix+".KEY}")
			return
		}
	}
}

// line is a text for people, or a word.
func line(example string) config.Value[string] {
	return config.Text(example).Then(func(o config.Object, key string, dst *string) {
		plain(o, key, dst)
		if len(*dst) > mostText {
			o.Wrong(key, o.Get(key), "is longer than %d bytes", mostText)
		}
	})
}

// names is a list of names of something.
func names(example, what string) config.Value[[]string] {
	return config.Texts(example).As("list of names").Unless("none").Then(func(o config.Object, key string, dst *[]string) {
		count[[]string](mostTexts)(o, key, dst)
		for i, it := range o.Items(key, false) {
			switch {
			case !config.AgentName(it.Text):
				o.Fail(it.Pos, "%s: %s can't name %s; use 1 to 64 letters, digits, dashes and underscores", it.Path, it.Shown, what)
			case slices.Contains((*dst)[:i], it.Text):
				o.Fail(it.Pos, "%s: %s stands twice; remove one", it.Path, it.Shown)
			}
		}
	})
}

// count bounds the entries of a list or map.
func count[V any](most int) func(o config.Object, key string, dst *V) {
	return func(o config.Object, key string, _ *V) {
		n := o.Get(key)
		if entries := len(n.Items) + len(n.Pairs); entries > most {
			o.Wrong(key, n, "has %d entries, and at most %d are allowed", entries, most)
		}
	}
}

// textOf takes a text apart and complains about its placeholders.
func textOf(o config.Object, n *config.Node, s, path string, k kind) Text {
	at := spot{o.File(), n.Pos, path}
	t, wrong := parse(s, k, func(int) spot { return at })
	for _, m := range wrong {
		where := ""
		if l := 1 + strings.Count(s[:m.offset], "\n"); l > 1 {
			where = fmt.Sprintf("line %d: ", l)
		}
		o.Fail(n.Pos, "%s: %s%s", path, where, m.what)
	}
	return t
}

func below(o config.Object, key string) string { return join(o.Path, key) }

var promptValue = config.Value[Text]{
	About: config.About{Type: "string", Schema: config.TextSchema},
	Read: func(o config.Object, key string, dst *Text) bool {
		var s string
		if !o.Text(key, &s, "You review changes.") {
			return false
		}
		if len(s) > mostPrompt {
			o.Wrong(key, o.Get(key), "is longer than %d KiB", mostPrompt>>10)
			return false
		}
		*dst = textOf(o, o.Get(key), s, below(o, key), kind{})
		return true
	},
}

// textsValue is a map of names to texts.
func textsValue(example string, k kind) config.Value[map[string]Text] {
	return config.Value[map[string]Text]{
		About: config.About{Type: "map", Default: "none", Schema: config.Schema{"type": "object"}},
		Read: func(o config.Object, key string, dst *map[string]Text) bool {
			var m map[string]string
			if !o.TextMap(key, &m, example) {
				return false
			}
			n := o.Get(key)
			count[map[string]Text](mostTexts)(o, key, dst)
			*dst = make(map[string]Text, len(m))
			for _, p := range n.Pairs {
				path := below(o, key)
				noPlaceholderKey(o, p, path)
				if p.Key == "" || strings.ContainsAny(p.Key, "=\x00") {
					o.Fail(p.KeyPos, "%s: %q can't name a variable", path, config.Clip(p.Key))
				}
				if s, ok := m[p.Key]; ok {
					(*dst)[p.Key] = textOf(o, p.Value, s, path+"."+p.Key, k)
				}
			}
			return true
		},
	}
}

var argsValue = config.Value[[]Text]{
	About: config.About{Type: "list", Default: "none", Schema: config.Schema{"type": "array"}},
	Read: func(o config.Object, key string, dst *[]Text) bool {
		var list []string
		if !o.Texts(key, &list, "[--strict]") {
			return false
		}
		count[[]Text](mostTexts)(o, key, dst)
		for _, it := range o.Items(key, false) {
			*dst = append(*dst, textOf(o, o.Get(key).Items[it.Index], it.Text, it.Path, kind{noRunner: true}))
		}
		return true
	},
}

var treeValue = config.Value[Tree]{
	About: config.About{Type: "map", Default: "none", Schema: config.Schema{"type": "object"}},
	Read: func(o config.Object, key string, dst *Tree) bool {
		n := o.Get(key)
		switch {
		case n == nil || n.Shape == config.ShapeNull:
			return false
		case n.Shape != config.ShapeMap:
			o.Wrong(key, n, "want a map, got %s", n.Shape)
			return false
		}
		*dst = treeOf(o, n, below(o, key), kind{})
		return true
	},
}

// scopeValue is a map of names to texts without placeholders.
var scopeValue = config.TextMap("{project: tine}").Unless("none").Then(func(o config.Object, key string, dst *map[string]string) {
	count[map[string]string](mostTexts)(o, key, dst)
	for _, p := range o.Get(key).Pairs {
		path := below(o, key) + "." + p.Key
		if !keyPattern.MatchString(p.Key) {
			o.Fail(p.KeyPos, "%s: %q can't name a scope value; use 1 to 128 letters, digits, dots, dashes and underscores", below(o, key), config.Clip(p.Key))
		}
		plainNode(o, path, p.Value)
		if len(p.Value.Text) > mostText {
			o.Fail(p.Value.Pos, "%s: is longer than %d bytes", path, mostText)
		}
	}
})

// toolsValue is a list of names, or a line of them with commas.
var toolsValue = config.Texts("[Read, Grep]").As("list, or a line with commas").Unless("none").By(func(o config.Object, key string, dst *[]string) bool {
	n := o.Get(key)
	if n != nil && n.Shape == config.ShapeString {
		for word := range strings.SplitSeq(n.Text, ",") {
			if word = strings.TrimSpace(word); word != "" {
				*dst = append(*dst, word)
			}
		}
		plainNode(o, below(o, key), n)
		return true
	}
	return o.Texts(key, dst, "[Read, Grep]")
}).Then(func(o config.Object, key string, dst *[]string) {
	for _, tool := range *dst {
		if strings.HasPrefix(tool, "mcp__") {
			o.Wrong(key, o.Get(key), "%s is a tool of an MCP server, and here stand the executor's own; name the server under mcp_servers", config.Clip(tool))
		}
	}
})

// choice is one of two words.
func choice(no, yes string) config.Value[bool] {
	return config.Value[bool]{
		About: config.About{Type: "`" + no + "`, `" + yes + "`", Default: "`" + no + "`", Schema: config.Schema{"enum": []string{no, yes}}},
		Read: func(o config.Object, key string, dst *bool) bool {
			var word string
			ok := o.OneOf(key, &word, no, yes)
			*dst = word == yes
			return ok
		},
	}
}

var (
	lostValue  = choice("fail", "retry")
	errorValue = choice("block", "continue")
)

// hooksValue is a list of hooks, or one.
var hooksValue = config.Value[[]Hook]{
	About: config.About{Type: "`{command, args, env, timeout, on_error}`, or a list of them", Default: "none", Schema: config.Schema{}},
	Read: func(o config.Object, key string, dst *[]Hook) bool {
		n := o.Get(key)
		if n == nil || n.Shape == config.ShapeNull {
			return false
		}
		if n.Shape != config.ShapeList {
			n = &config.Node{Shape: config.ShapeList, Pos: n.Pos, Items: []*config.Node{n}}
		}
		o.Set(key, n)
		count[[]Hook](mostHooks)(o, key, dst)
		for i, item := range n.Items {
			if item.Shape == config.ShapeMap && (item.Get("agent_name") != nil || item.Get("type") != nil) {
				o.Fail(item.Pos, "%s[%d]: a hook is a command here and no agent; write command: PROGRAM", below(o, key), i)
				continue
			}
			c, ok := o.Item(key, i, item, hookTable.Names())
			if !ok {
				continue
			}
			var h Hook
			hookTable.Read(c, &h)
			hookTable.Fill(&h)
			if strings.TrimSpace(h.Command) == "" && !c.HasUnknown(hookTable.Names()) {
				o.Fail(c.Pos(), "%s: command is missing; name a program", c.Path)
			}
			h.at = spot{o.File(), c.KeyPos("command"), c.Path + ".command"}
			*dst = append(*dst, h)
		}
		return true
	},
}

// nodeValue leaves a map for later.
var nodeValue = config.Value[*config.Node]{
	About: config.About{Type: "map", Default: "none", Schema: config.Schema{"type": "object"}},
	Read: func(o config.Object, key string, dst **config.Node) bool {
		*dst = o.Get(key)
		return *dst != nil
	},
}

var schemaValue = config.Value[json.RawMessage]{
	About: config.About{Type: "JSON Schema", Schema: config.Schema{"type": "object"}},
	Read: func(o config.Object, key string, dst *json.RawMessage) bool {
		n := o.Get(key)
		switch {
		case n == nil || n.Shape == config.ShapeNull:
			return false
		case n.Shape != config.ShapeMap:
			o.Wrong(key, n, "want a JSON Schema, which is a map, got %s; write {type: object, properties: {...}}", n.Shape)
			return false
		}
		b, err := json.Marshal(n.Value())
		if err == nil {
			_, err = compile(b)
		}
		if err != nil {
			o.Wrong(key, n, "%v", err)
			return false
		}
		*dst = b
		return true
	},
}
