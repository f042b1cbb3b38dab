package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Addition is a server to be written into a config file: a command, a URL or a
// built-in one. Placeholders in it stay as they are.
type Addition struct {
	Command string
	Args    []string
	URL     string
	Builtin string
	Env     map[string]string
	Headers map[string]string
	Sandbox bool
}

// AddServer returns the text of a config file with one more server, and the config
// that it is then. Everything else in the text stays byte for byte as it was.
func AddServer(data []byte, opts Options, id string, s Addition) ([]byte, *Config, error) {
	e, err := newEdit(data, opts)
	if err != nil {
		return nil, nil, err
	}
	if err := checkID(id, e.before.Separator); err != nil {
		return nil, nil, err
	}
	if i := slices.IndexFunc(e.before.Servers, func(s Server) bool { return s.ID == id }); i >= 0 {
		return nil, nil, fmt.Errorf("%s has a server %q already; choose another name, or take that one out first: tine servers remove %s", e.file, id, id)
	}
	entry, err := e.entry(s)
	if err != nil {
		return nil, nil, err
	}
	var text []byte
	if e.t.json {
		text, err = e.addJSON(id, entry)
	} else {
		text, err = e.addYAML(id, entry)
	}
	if err != nil {
		return nil, nil, err
	}
	return e.check(text, Changes{Added: []string{id}})
}

// Empty is the text of a config file of a name that has no server yet.
func Empty(path string) []byte {
	if strings.EqualFold(filepath.Ext(path), ".json") {
		return []byte("{\n  \"mcpServers\": {}\n}\n")
	}
	return []byte("servers: {}\n")
}

// Standard is the text of a tine.yaml that means what no config file means.
func Standard() []byte {
	text := "servers:\n"
	for _, name := range standing {
		text += "  " + name + ": {builtin: " + name + "}\n"
	}
	return []byte(text)
}

// RemoveServer returns the text of a config file without a server, and the config
// that it is then. Everything else in the text stays byte for byte as it was.
func RemoveServer(data []byte, opts Options, id string) ([]byte, *Config, error) {
	e, err := newEdit(data, opts)
	if err != nil {
		return nil, nil, err
	}
	at, err := e.find(id)
	if err != nil {
		return nil, nil, err
	}
	var text []byte
	if e.t.json {
		text = e.removeJSON(at)
	} else if text, err = e.removeYAML(at); err != nil {
		return nil, nil, err
	}
	return e.check(text, Changes{Removed: []string{id}})
}

// An edit is a config file that is about to be changed.
type edit struct {
	file   string
	opts   Options
	mark   []byte // a byte order mark, which stays
	data   []byte // without it
	nl     string // how its lines end
	t      *tree
	form   format
	before *Config
	// key holds the servers, in a map at the top or one below that.
	key     string
	parent  *Node
	servers *Node // nil when the key is not there
}

func newEdit(data []byte, opts Options) (*edit, error) {
	before, err := Parse(data, opts)
	if err != nil {
		return nil, fmt.Errorf("nothing was changed, since the file is wrong as it is:\n%w", err)
	}
	e := &edit{file: opts.Path, opts: opts, before: before, nl: "\n"}
	e.data, _ = bytes.CutPrefix(data, byteOrderMark)
	e.mark = data[:len(data)-len(e.data)]
	if first, _, ok := bytes.Cut(e.data, []byte("\n")); ok && bytes.HasSuffix(first, []byte("\r")) {
		e.nl = "\r\n"
	}
	if e.t, err = readTree(e.data, opts.Path); err != nil {
		return nil, err
	}
	root := e.t.root
	e.form, e.parent, e.key = detect(e.t), root, "servers"
	switch {
	case e.form == formatRewardKit:
		return nil, fmt.Errorf("%s is a RewardKit config; add or remove the backend there, or make a tine.yaml of it: tine config import %s", e.file, e.file)
	case root.Shape != ShapeMap && root.Shape != ShapeNull:
		return nil, e.byHand("it is no map of keys")
	case e.form == formatMCPServers, e.form == formatTine && e.t.json && len(root.Pairs) == 0:
		e.key, e.form = keyMCPServers, formatMCPServers
	case e.form == formatVSCode && (root.Get("servers") == nil || root.Get("servers").Shape == ShapeNull):
		e.parent = root.Get("mcp")
	}
	e.servers = e.parent.Get(e.key)
	return e, nil
}

// byHand is the error of a file that can't be changed safely.
func (e *edit) byHand(why string) error {
	return fmt.Errorf("%s can't be changed by a command, since %s; change it by hand, then see tine config check", e.file, why)
}

// entry is a server as the file writes it.
func (e *edit) entry(s Addition) (*Node, error) {
	n := MapNode()
	text := func(key, value string) {
		if value != "" {
			n.Set(key, StringNode(value))
		}
	}
	texts := func(key string, values map[string]string) {
		if len(values) == 0 {
			return
		}
		m := MapNode()
		for _, k := range slices.Sorted(maps.Keys(values)) {
			m.Set(k, StringNode(values[k]))
		}
		n.Set(key, m)
	}
	if e.form != formatTine && (s.Builtin != "" || s.Sandbox) {
		return nil, fmt.Errorf("%s is a file of another program, which knows neither builtin nor sandbox; make a tine.yaml of it first: tine config import %s -o tine.yaml", e.file, e.file)
	}
	text("builtin", s.Builtin)
	text("command", s.Command)
	if len(s.Args) > 0 {
		n.Set("args", ListNode(s.Args...))
	}
	if s.URL != "" && e.form != formatTine {
		text("type", foreignType(s.URL))
	}
	text("url", s.URL)
	texts("headers", s.Headers)
	texts("env", s.Env)
	if s.Sandbox {
		n.Set("sandbox", BoolNode(true))
	}
	return n, nil
}

// foreignType is the type of a URL in files of other programs, which don't find it
// out by themselves.
func foreignType(address string) string {
	if u, err := url.Parse(address); err == nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/sse") {
		return "sse"
	}
	return "http"
}

// find is where a server stands among those of the file.
func (e *edit) find(id string) (int, error) {
	var names []string
	if e.servers != nil {
		for _, p := range e.servers.Pairs {
			names = append(names, p.Key)
		}
	}
	ids := newIDBook(names, e.before.Separator)
	for i, name := range names {
		if name == id || e.form != formatTine && ids.id(name) == id {
			return i, nil
		}
	}
	var known []string
	for _, s := range e.before.Servers {
		if s.ID == id {
			return 0, fmt.Errorf("server %q is not written in %s; it comes from MCP_REMOTE_SERVERS: change that", id, e.file)
		}
		known = append(known, s.ID)
	}
	if g := Guess(id, known); g != "" {
		return 0, fmt.Errorf("%s has no server %q; did you mean %q?", e.file, Clip(id), g)
	}
	return 0, fmt.Errorf("%s has no server %q; it has %s", e.file, Clip(id), strings.Join(known[:min(len(known), maxProblems)], ", "))
}

// check returns the new text, if it means what was wanted and nothing else.
func (e *edit) check(text []byte, want Changes) ([]byte, *Config, error) {
	text = slices.Concat(e.mark, text)
	after, err := Parse(text, e.opts)
	var wrong *Error
	if errors.As(err, &wrong) {
		return nil, nil, fmt.Errorf("nothing was changed, since the file would be wrong then:\n%w", err)
	} else if err != nil {
		return nil, nil, err
	}
	got := Diff(e.before, after)
	if !slices.Equal(got.Added, want.Added) || !slices.Equal(got.Removed, want.Removed) || len(got.Changed)+len(got.Rest) > 0 {
		return nil, nil, e.byHand("the way it is written is not one that Tine knows how to change")
	}
	for _, s := range after.Servers {
		if slices.Contains(want.Added, s.ID) && s.Disabled != "" && len(s.gone) == 0 {
			return nil, nil, errors.New("nothing was changed: " + s.Disabled)
		}
	}
	return text, after, nil
}
