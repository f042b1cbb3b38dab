package config

import (
	"fmt"
	"slices"
	"strings"
)

// decoder turns a tree into a Config and says what is wrong on the way.
type decoder struct {
	report
	opts      Options
	res       resolver
	separator string
	// entryKeys are those of an entry of servers. The tables are read by a decoder, so it
	// can't name them itself.
	entryKeys []About
	// document is set for a file of another program, whose keys are not a config's.
	document *Document

	// Kept for checks that need the whole config.
	listenPos   Pos
	defaultView *Node
	named       []named
	members     []named // servers that environments name
	// roots is whether sessions may bring templates of their own.
	roots bool
	// workspaceOff is where the top says that sessions have no workspace.
	workspaceOff *Node
	// spaceTemplates is where servers say what the workspace begins with.
	spaceTemplates map[string]Pos

	unfit []missing // values of placeholders in the server that is being read, which will not do

	files   []ownFile // that the gateway trusts, as far as they are known
	visible []Visible // to sandboxes
	seeds   []Visible // what states and workspaces begin with, or may
	opened  []Visible // to servers by other ways: the root of files, and binds

	// What telemetry.otlp says itself; the environment says the rest.
	otlpEndpoint, otlpHeaders bool
	editors                   bool // the file is certainly an editor's
}

// Object reads the keys of one map. The methods named after types look a key
// up, complain when its value does not fit, and report whether dst was set.
type Object struct {
	d    *decoder
	n    *Node
	Path string // for messages: servers.fs.env
	rel  string // the same inside its server or config, for hidden

	// hidden collects the rel of every string that came from a placeholder.
	hidden map[string]bool
}

// object starts reading a map. Known lists the keys it may have.
func (d *decoder) object(n *Node, path string, hidden map[string]bool, known []string) (Object, bool) {
	o := Object{d: d, n: n, Path: path, hidden: hidden}
	if n.Shape == ShapeNull {
		o.n = MapNode()
		return o, true
	}
	if n.Shape != ShapeMap {
		if !n.Missing {
			d.fail(n.Pos, "%swant a map of %s, got %s", prefix(path), strings.Join(known, ", "), n.Shape)
		}
		return o, false
	}
	for _, p := range n.Pairs {
		if !slices.Contains(known, p.Key) {
			d.unknownKey(p, path, known, n)
		}
	}
	return o, true
}

// Child starts reading the map under a key.
func (o Object) Child(key string, known []string) (Object, bool) {
	n := o.n.Get(key)
	if n == nil {
		return Object{d: o.d, n: MapNode()}, false
	}
	c, ok := o.d.object(n, join(o.Path, key), o.hidden, known)
	c.rel = join(o.rel, key)
	return c, ok
}

// ChildOr is child for a map that has a short form: one of some words in its
// place, which is given back.
func (o Object) ChildOr(key string, known []string, words ...string) (c Object, word string, ok bool) {
	n := o.n.Get(key)
	if n == nil || !n.Scalar() || n.Shape == ShapeNull || len(words) == 0 {
		c, ok = o.Child(key, known)
		return c, "", ok
	}
	switch {
	case n.Missing:
	case slices.Contains(words, n.Text):
		return c, n.Text, false
	default:
		o.Wrong(key, n, "got %s, want %s, or a map of %s", n.Shown(), OrList(words), strings.Join(known, ", "))
	}
	return c, "", false
}

// HasUnknown reports whether the map has a key that there is not: what is missing may be
// what was meant.
func (o Object) HasUnknown(known []string) bool {
	return slices.ContainsFunc(o.n.Pairs, func(p Pair) bool { return !slices.Contains(known, p.Key) })
}

// Get is the value of a key, or nil.
func (o Object) Get(key string) *Node { return o.n.Get(key) }

// Below is the map under a key, as it is; an empty one where there is none.
func (o Object) Below(key string) Object {
	n := o.n.Get(key)
	if n == nil || n.Shape != ShapeMap {
		n = MapNode()
		n.Pos = o.KeyPos(key)
	}
	return Object{d: o.d, n: n, Path: join(o.Path, key), rel: join(o.rel, key), hidden: o.hidden}
}

// Fail says what is wrong at a place.
func (o Object) Fail(at Pos, format string, args ...any) { o.d.fail(at, format, args...) }

// Warn tells something that stops nothing.
func (o Object) Warn(at Pos, format string, args ...any) { o.d.warn(at, format, args...) }

// File is the file that is read, as messages name it.
func (o Object) File() string { return o.d.file }

// Pos is where the map stands.
func (o Object) Pos() Pos { return o.n.Pos }

// Set replaces the value of a key, before it is read.
func (o Object) Set(key string, n *Node) { o.n.Set(key, n) }

// Item starts reading a map that is an entry of the list under a key.
func (o Object) Item(key string, i int, n *Node, known []string) (Object, bool) {
	c, ok := o.d.object(n, join(o.Path, key)+"["+itoa(i)+"]", o.hidden, known)
	c.rel = join(o.rel, key) + "." + itoa(i)
	return c, ok
}

// Hide keeps what is below a key of the map from view.
func (o Object) Hide(rel string) { o.hidden[join(o.rel, rel)] = true }

// Getenv is a variable of the gateway's.
func (o Object) Getenv(name string) (string, bool) { return o.d.opts.Getenv(name) }

// ReadFile reads a file that the config names. No sandbox sees it from then on.
func (o Object) ReadFile(path string) ([]byte, error) { return o.d.opts.ReadFile(path) }

// InFile reports whether the config came from a file, at whose folder paths start.
func (o Object) InFile() bool { return o.d.res.paths.dir != "" }

// ExpandHome fills in ~ at the beginning of a path.
func (o Object) ExpandHome(path string) string { return o.d.res.paths.expandHome(path) }

// TemplateRoots reports whether sessions may bring templates of their own.
func (o Object) TemplateRoots() bool { return o.d.roots }

// Resolve makes a path of the config whole: it starts at the folder of the file.
func (o Object) Resolve(path string) string { return o.d.res.paths.resolve(path) }

func prefix(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// otherWords are keys and values that people know from elsewhere.
var otherWords = map[string]string{
	"mcpServers": "servers", "backends": "servers", "cmd": "command", "arguments": "args", "environment": "env",
	"environ": "env", "workdir": "cwd", "dir": "cwd", "directory": "cwd", "envFile": "env_file", "endpoint": "url", "serverUrl": "url",
	"httpUrl": "url", "uri": "url", "name": "title", "type": "transport", "address": "listen", "addr": "listen",
	"bind": "listen", "disabled": "enabled", "origins": "cors", "logging": "log", "log_level": "log", "ca": "ca_file",
	"disabledTools": "tools", "keys": "tokens", "warning": "warn", "stdio": "process",
	"http": "streamable", "streamable-http": "streamable", "streamable_http": "streamable", "streamableHttp": "streamable",
	"image": "docker", "volumes": "binds", "mounts": "binds", "container": "docker", "orchestrator": "remote",
	"gvisor": "sandbox", "runsc": "sandbox", "domains": "network", "allowed_domains": "network",
	"retries": "retry", "circuit_breaker": "breaker", "rate_limit": "rate", "limit": "rate",
	"global": ScopeShared, "shared_global": ScopeShared, "client": ScopeSession,
}

// unknownKey reports a key of a map that there is not.
func (d *decoder) unknownKey(p Pair, path string, known []string, n *Node) {
	d.fail(p.KeyPos, "%s", d.unknown(p.Key, path, known, n))
}

func (d *decoder) unknown(key, path string, known []string, n *Node) string {
	where := ""
	if path != "" {
		where = " in " + path
	}
	msg := fmt.Sprintf("unknown key %q%s", Clip(key), where)
	if d.document != nil && d.document.Unknown != nil {
		if more := d.document.Unknown(path, key); more != "" {
			return msg + "; " + more
		}
	}
	meant := known
	if path == "" && key != keyMCPServers && d.document == nil {
		meant = append(slices.Clone(known), keyMCPServers) // the one key of a file of another program
	}
	if g := Guess(key, meant); g != "" {
		return msg + fmt.Sprintf("; did you mean %q?", g)
	}
	if place := d.elsewhere(key, path, n); place != "" && d.document == nil {
		return msg + "; that is " + place
	}
	return msg + "; known keys: " + strings.Join(known, ", ")
}

// Guess is the word that was meant, by its spelling or from elsewhere.
func Guess(word string, known []string) string {
	if word == "" || word[0] >= '0' && word[0] <= '9' {
		return "" // a number or a date is near to every other
	}
	if g := Nearest(word, known); g != "" {
		return g
	}
	if w := otherWords[word]; slices.Contains(known, w) {
		return w
	}
	return ""
}

// Lookup finds a key's value. Values whose placeholder is missing were reported
// already and count as not given.
func (o Object) Lookup(key string) (*Node, bool) {
	n := o.n.Get(key)
	return n, n != nil && !n.Missing
}

func (o Object) Wrong(key string, n *Node, format string, args ...any) {
	o.d.fail(n.Pos, "%s: %s", join(o.Path, key), fmt.Sprintf(format, args...))
}

func (o Object) note(rel string, n *Node) {
	if n.From != "" && o.hidden != nil {
		o.hidden[join(o.rel, rel)] = true
	}
}

// Text accepts a string. Numbers and booleans are refused: where a string is
// wanted they are mostly a missing pair of quotes or a wrong key.
func (o Object) Text(key string, dst *string, example string) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	switch {
	case n.Shape != ShapeString:
		got := n.Shown()
		if secretName(key) {
			got = n.Shape.String()
		}
		o.Wrong(key, n, "want a string, got %s%s; write %s: %s", got, n.TildeHint(), key, example)
		return false
	case strings.ContainsRune(n.Text, 0):
		o.Wrong(key, n, "contains a NUL character")
		return false
	}
	o.note(key, n)
	*dst = n.Text
	return true
}

func (o Object) OneOf(key string, dst *string, allowed ...string) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	// Revisions such as 2025-06-18 need no quotes in YAML, and get none here.
	if n.Scalar() && n.Shape != ShapeNull && slices.Contains(allowed, n.Text) {
		*dst = n.Text
		return true
	}
	hint := ""
	if n.Shape == ShapeString && n.From == "" {
		if g := Guess(n.Text, allowed); g != "" {
			hint = fmt.Sprintf("; did you mean %q?", g)
		}
	}
	o.Wrong(key, n, "got %s, want %s%s", n.Shown(), OrList(allowed), hint)
	return false
}

func OrList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// Written accepts any scalar but null and gives it as it was written, for
// things that are strings to the world and often numbers in a file.
func (o Object) Written(key string, n *Node, what string) (string, bool) {
	switch {
	case n.Missing:
		return "", false
	case n.Shape == ShapeNull:
		o.Wrong(key, n, "has no value%s; write \"\" for an empty one", n.TildeHint())
		return "", false
	case !n.Scalar():
		o.Wrong(key, n, "want %s, got %s", what, n.Shape)
		return "", false
	case strings.ContainsRune(n.Text, 0):
		o.Wrong(key, n, "contains a NUL character")
		return "", false
	}
	o.note(key, n)
	return n.Text, true
}
