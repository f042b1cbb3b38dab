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

	// Kept for checks that need the whole config.
	listenPos   pos
	defaultView *node
	named       []named
	// roots is whether sessions may bring templates of their own.
	roots bool
	// workspaceOff is where the top says that sessions have no workspace.
	workspaceOff *node
	// spaceTemplates is where servers say what the workspace begins with.
	spaceTemplates map[string]pos

	files   []ownFile // that the gateway trusts, as far as they are known
	visible []visible // to sandboxes
	seeds   []visible // what states and workspaces begin with, or may
	opened  []visible // to servers by other ways: the root of files, and binds

	// What telemetry.otlp says itself; the environment says the rest.
	otlpEndpoint, otlpHeaders bool
}

// object reads the keys of one map. The methods named after types look a key
// up, complain when its value does not fit, and report whether dst was set.
type object struct {
	d    *decoder
	n    *node
	path string // for messages: servers.fs.env
	rel  string // the same inside its server or config, for hidden

	// hidden collects the rel of every string that came from a placeholder.
	hidden map[string]bool
}

// object starts reading a map. Known lists the keys it may have.
func (d *decoder) object(n *node, path string, hidden map[string]bool, known []string) (object, bool) {
	o := object{d: d, n: n, path: path, hidden: hidden}
	if n.kind == kindNull {
		o.n = mapNode()
		return o, true
	}
	if n.kind != kindMap {
		if !n.missing {
			d.fail(n.pos, "%swant a map of %s, got %s", prefix(path), strings.Join(known, ", "), n.kind)
		}
		return o, false
	}
	for _, p := range n.pairs {
		if !slices.Contains(known, p.key) {
			d.fail(p.keyPos, "%s", unknownKey(p.key, path, known))
		}
	}
	return o, true
}

// child starts reading the map under a key.
func (o object) child(key string, known []string) (object, bool) {
	n := o.n.get(key)
	if n == nil {
		return object{d: o.d, n: mapNode()}, false
	}
	c, ok := o.d.object(n, join(o.path, key), o.hidden, known)
	c.rel = join(o.rel, key)
	return c, ok
}

// childOr is child for a map that has a short form: one of some words in its
// place, which is given back.
func (o object) childOr(key string, known []string, words ...string) (c object, word string, ok bool) {
	n := o.n.get(key)
	if n == nil || !n.scalar() || n.kind == kindNull {
		c, ok = o.child(key, known)
		return c, "", ok
	}
	switch {
	case n.missing:
	case slices.Contains(words, n.text):
		return c, n.text, false
	default:
		o.wrong(key, n, "got %s, want %s, or a map of %s", n.shown(), orList(words), strings.Join(known, ", "))
	}
	return c, "", false
}

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
	"image": "docker", "container": "docker", "orchestrator": "remote",
	"gvisor": "sandbox", "runsc": "sandbox", "domains": "network", "allowed_domains": "network",
	"retries": "retry", "circuit_breaker": "breaker", "rate_limit": "rate", "limit": "rate",
	"global": ScopeShared, "shared_global": ScopeShared, "client": ScopeSession,
}

func unknownKey(key, path string, known []string) string {
	where := ""
	if path != "" {
		where = " in " + path
	}
	msg := fmt.Sprintf("unknown key %q%s", clip(key), where)
	meant := known
	if path == "" && key != keyMCPServers {
		meant = append(slices.Clone(known), keyMCPServers) // the one key of a file of another program
	}
	if g := guess(key, meant); g != "" {
		return msg + fmt.Sprintf("; did you mean %q?", g)
	}
	return msg + "; known keys: " + strings.Join(known, ", ")
}

// guess is the word that was meant, by its spelling or from elsewhere.
func guess(word string, known []string) string {
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

// lookup finds a key's value. Values whose placeholder is missing were reported
// already and count as not given.
func (o object) lookup(key string) (*node, bool) {
	n := o.n.get(key)
	return n, n != nil && !n.missing
}

func (o object) wrong(key string, n *node, format string, args ...any) {
	o.d.fail(n.pos, "%s: %s", join(o.path, key), fmt.Sprintf(format, args...))
}

func (o object) note(rel string, n *node) {
	if n.from != "" && o.hidden != nil {
		o.hidden[join(o.rel, rel)] = true
	}
}

// text accepts a string. Numbers and booleans are refused: where a string is
// wanted they are mostly a missing pair of quotes or a wrong key.
func (o object) text(key string, dst *string, example string) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	switch {
	case n.kind != kindString:
		got := n.shown()
		if secretName(key) {
			got = n.kind.String()
		}
		o.wrong(key, n, "want a string, got %s%s; write %s: %s", got, n.tildeHint(), key, example)
		return false
	case strings.ContainsRune(n.text, 0):
		o.wrong(key, n, "contains a NUL character")
		return false
	}
	o.note(key, n)
	*dst = n.text
	return true
}

func (o object) oneOf(key string, dst *string, allowed ...string) bool {
	n, ok := o.lookup(key)
	if !ok {
		return false
	}
	// Revisions such as 2025-06-18 need no quotes in YAML, and get none here.
	if n.scalar() && n.kind != kindNull && slices.Contains(allowed, n.text) {
		*dst = n.text
		return true
	}
	hint := ""
	if n.kind == kindString && n.from == "" {
		if g := guess(n.text, allowed); g != "" {
			hint = fmt.Sprintf("; did you mean %q?", g)
		}
	}
	o.wrong(key, n, "got %s, want %s%s", n.shown(), orList(allowed), hint)
	return false
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// written accepts any scalar but null and gives it as it was written, for
// things that are strings to the world and often numbers in a file.
func (o object) written(key string, n *node, what string) (string, bool) {
	switch {
	case n.missing:
		return "", false
	case n.kind == kindNull:
		o.wrong(key, n, "has no value%s; write \"\" for an empty one", n.tildeHint())
		return "", false
	case !n.scalar():
		o.wrong(key, n, "want %s, got %s", what, n.kind)
		return "", false
	case strings.ContainsRune(n.text, 0):
		o.wrong(key, n, "contains a NUL character")
		return "", false
	}
	o.note(key, n)
	return n.text, true
}
