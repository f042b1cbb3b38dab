package blueprint

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// mostFile bounds a file of a blueprint, and a document of the API.
const mostFile = 1 << 20

// A source is a document and what stands beside it.
type source struct {
	path string // as messages name it
	name string // that of the file or folder; empty where the document says it
	data []byte
	dir  string // the folder of files beside it; empty for none
	body bool   // Markdown: the text below the front matter is the prompt
	own  bool   // the folder is the blueprint's own, with files of known names
	kind string // agent or capability: of those files' names
}

// report collects what is wrong over several files.
type report struct {
	problems []config.Problem
	warnings []string
	more     int
}

func (r *report) take(file string, err error) {
	var e *config.Error
	switch {
	case err == nil:
	case errors.As(err, &e):
		r.problems = append(r.problems, e.Problems...)
		r.more += e.More
	default:
		r.problems = append(r.problems, config.Problem{File: file, Message: err.Error()})
	}
}

func (r *report) add(p ...config.Problem) { r.problems = append(r.problems, p...) }

func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	return &config.Error{Problems: r.problems, More: r.more}
}

// parseDocument reads a document of the keys of a table.
func parseDocument(src source, table config.Table[draft], data []byte, r *report) (draft, map[string]spot) {
	var d draft
	spots := map[string]spot{}
	doc := config.Document{YAML: true, Keys: keysOf(table), Unknown: unknownKey}
	if !src.body { // front matter may have no keys
		doc.Empty = "is empty; write keys such as description"
	}
	doc.Read = func(o config.Object) {
		renamed(o)
		table.Read(o, &d)
		table.Fill(&d)
		if d.own != nil {
			d.Servers = readServers(o, "mcp_servers", d.own)
		}
		for _, key := range table.Names() {
			spots[key] = spot{src.path, o.KeyPos(key), key}
			for _, it := range itemsOf(o, key) {
				spots[it.Path] = spot{src.path, it.Pos, it.Path}
			}
		}
		if n := o.Get("executor_config"); n != nil {
			for _, p := range n.Pairs {
				path := "executor_config." + p.Key
				spots[path] = spot{src.path, p.KeyPos, path}
			}
		}
	}
	warnings, err := doc.Parse(data, src.path)
	r.warnings = append(r.warnings, warnings...)
	r.take(src.path, err)
	return d, spots
}

// itemsOf are the entries of a list of texts.
func itemsOf(o config.Object, key string) []config.Item {
	if n := o.Get(key); n == nil || n.Shape != config.ShapeList {
		return nil
	}
	return o.Items(key, false)
}

// unknownKeys are keys that other programs have, with what to do.
var unknownKeys = map[string]string{
	"script":           "write executor: procedural and executor_config: {command: PROGRAM}",
	"skills":           "there are no skills; mix in a capability, or put it into the system prompt",
	"command":          "write executor: command and executor_config: {command: PROGRAM}",
	"permissionMode":   "an agent may use the tools that tools and mcp_servers name, and is asked nothing",
	"memory":           "an agent's state is that of its session; remove it",
	"maxTurns":         "write executor_config: {max_turns: N}",
	"executor_profile": "write executor_type, or tags",
}

func unknownKey(path, key string) string {
	if path == "" || key == "executor_profile" {
		return unknownKeys[key]
	}
	return ""
}

// read reads a blueprint or a capability.
func (src source) read(table config.Table[draft], r *report) draft {
	if len(src.data) > mostFile {
		r.add(config.Problem{File: src.path, Message: fmt.Sprintf("is larger than %d KiB", mostFile>>10)})
		return draft{}
	}
	data := src.data
	var body string
	var line int
	if src.body {
		var ok bool
		if data, body, line, ok = frontMatter(data); !ok {
			r.add(config.Problem{File: src.path, Line: 1, Column: 1, Message: "want front matter: a line ---, keys such as description, a line ---, and then the system prompt"})
			return draft{}
		}
	}
	d, spots := parseDocument(src, table, data, r)
	d.spots = spots
	d.Source = src.path
	src.setName(&d, r)
	if src.body && strings.TrimSpace(body) != "" {
		if !d.SystemPrompt.Empty() || d.promptFile != "" {
			r.add(src.at(d, "system_prompt").problem("stands above and below the front matter; keep the text below"))
		}
		d.SystemPrompt = textIn(src.path, strings.TrimSpace(body), line+strings.Count(body[:len(body)-len(strings.TrimLeft(body, " \t\r\n"))], "\n"), "", r)
	}
	src.prompt(&d, r)
	src.serversBeside(&d, r)
	src.settings(&d, r)
	return d
}

func (src source) at(d draft, key string) spot {
	if s, ok := d.spots[key]; ok {
		return s
	}
	return spot{file: src.path, path: key}
}

// setName has the name of a blueprint be that of its file.
func (src source) setName(d *draft, r *report) {
	switch {
	case src.name == "" && d.Name == "":
		r.add(config.Problem{File: src.path, Message: "name is missing; give the agent a name"})
	case src.name == "":
	case !config.AgentName(src.name):
		r.add(config.Problem{File: src.path, Message: fmt.Sprintf("%q can't name it; rename the file or folder to 1 to 64 letters, digits, dashes and underscores", config.Clip(src.name))})
	case d.Name != "" && d.Name != src.name:
		what := "the file or folder"
		if src.dir == "" {
			what = "the agent"
		}
		r.add(src.at(*d, "name").problem("is %q, but %s is called %q; give both one name", config.Clip(d.Name), what, src.name))
	}
	if src.name != "" {
		d.Name = src.name
	}
}

// frontMatter cuts a Markdown file. The keys keep the lines at which they stand; line is
// that of the body's first.
func frontMatter(data []byte) (keys []byte, body string, line int, ok bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	rest, ok := bytes.CutPrefix(data, []byte("---\n"))
	if !ok {
		return nil, "", 0, false
	}
	keys, line = []byte("\n"), 2
	for len(rest) > 0 {
		var l []byte
		l, rest, _ = bytes.Cut(rest, []byte("\n"))
		line++
		if string(bytes.TrimRight(l, " \t")) == "---" {
			return keys, string(rest), line, true
		}
		keys = append(append(keys, l...), '\n')
	}
	return nil, "", 0, false
}

// textIn takes the text of a file apart that begins at a line.
func textIn(file, s string, line int, path string, r *report) Text {
	if len(s) > mostPrompt {
		r.add(config.Problem{File: file, Message: fmt.Sprintf("the system prompt is longer than %d KiB", mostPrompt>>10)})
		return Text{}
	}
	if strings.ContainsRune(s, 0) {
		r.add(config.Problem{File: file, Message: "the system prompt contains a NUL character"})
		return Text{}
	}
	at := func(offset int) spot {
		before := s[:offset]
		start := strings.LastIndexByte(before, '\n') + 1
		return spot{file, config.Pos{Line: line + strings.Count(before, "\n"), Col: 1 + len([]rune(before[start:]))}, path}
	}
	t, wrong := parse(s, kind{}, at)
	for _, m := range wrong {
		r.add(at(m.offset).problem("%s", m.what))
	}
	return t
}

// settings gives short keys their place in executor_config, and paths their folder.
func (src source) settings(d *draft, r *report) {
	set := func(key string, given bool, v any) {
		if !given {
			return
		}
		if d.Config.Get(key).kind != treeNone {
			r.add(src.at(*d, key).problem("stands beside executor_config.%s; keep one", key))
			return
		}
		d.Config = d.Config.with(key, literal(v))
		d.spots["executor_config."+key] = src.at(*d, key)
	}
	tools := make([]any, len(d.tools))
	for i, tool := range d.tools {
		tools[i] = tool
	}
	set("tools", len(tools) > 0, tools)
	set("model", d.model != "" && d.model != "inherit", d.model)
	switch {
	case d.kind == "procedural" && d.Executor == "":
		d.Executor = config.ExecutorProcedural
	case d.Executor == "":
		d.Executor = DefaultExecutor
	}
	for _, hooks := range [][]Hook{d.Hooks.Start, d.Hooks.Finish} {
		for i := range hooks {
			if h := &hooks[i]; strings.ContainsAny(h.Command, `/\`) && !filepath.IsAbs(h.Command) {
				if src.dir == "" {
					r.add(src.at(*d, "hooks").problem("%q is a path that starts at no folder; give the whole path", config.Clip(h.Command)))
					continue
				}
				h.Command = absolute(filepath.Join(src.dir, h.Command))
			}
		}
	}
	if what := notObject(d.Parameters); what != "" {
		r.add(src.at(*d, "parameters").problem("%s", what))
	}
	inlineNames(&d.Blueprint, r)
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// inlineNames refuses a server of the blueprint's own that has the id of one that another
// name refers to: a session knows both by their ids.
func inlineNames(b *Blueprint, r *report) {
	for _, name := range b.serverNames() {
		if ref := b.Servers[name].Ref; ref != "" && ref != name {
			if own, ok := b.Servers[ref]; ok && own.Ref == "" {
				r.add(own.at.problem("%s refers to the server %q of the config, so that this one needs another name", "mcp_servers."+name, ref))
			}
		}
	}
}

// literal is a value without placeholders.
func literal(v any) Tree {
	switch v := v.(type) {
	case string:
		t := Literal(v)
		return Tree{kind: treeText, text: &t}
	case []any:
		tree := Tree{kind: treeList, list: make([]Tree, len(v))}
		for i, item := range v {
			tree.list[i] = literal(item)
		}
		return tree
	}
	return Tree{kind: treeScalar, value: v}
}

// Parse reads a document of the API.
func Parse(name string, data []byte) (Blueprint, error) {
	var r report
	src := source{path: "agent " + name, name: name, data: data, kind: "agent"}
	d := src.read(blueprintTable, &r)
	d.Source = ""
	if err := r.err(); err != nil {
		return Blueprint{}, err
	}
	return d.Blueprint, nil
}

// fileKinds are the names of a blueprint's file in its folder.
func fileKinds(kind string) (names []string) {
	for _, ending := range endings {
		names = append(names, kind+ending)
	}
	return names
}

// endings are those of documents.
var endings = []string{".yaml", ".yml", ".json", ".md"}

func isMarkdown(name string) bool { return strings.EqualFold(filepath.Ext(name), ".md") }

// sortProblems puts problems of one file in the order of the file.
func sortProblems(ps []config.Problem) []config.Problem {
	slices.SortStableFunc(ps, func(a, b config.Problem) int {
		if a.File != b.File {
			return 0
		}
		return (a.Line-b.Line)*1_000_000 + a.Column - b.Column
	})
	return ps
}
