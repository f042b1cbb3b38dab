package config

import (
	"sort"
	"strconv"
	"strings"
	"time"
)

func itoa(i int) string { return strconv.Itoa(i) }

// Marshal writes a resolved config as YAML for people to read: every default
// filled in, every secret masked. It can't be loaded again.
func Marshal(c *Config) []byte {
	root := mapNode()
	str := func(n *node, key, rel, v string) {
		if c.hidden[rel] && v != "" {
			v = mask
		}
		n.set(key, stringNode(v))
	}
	// A listen address is not a secret, wherever it came from.
	root.set("listen", stringNode(c.Listen))
	if c.PublicURL != "" {
		str(root, "public_url", "public_url", c.PublicURL)
	}
	if c.TLS.Cert != "" {
		tls := mapNode()
		str(tls, "cert", "tls.cert", c.TLS.Cert)
		str(tls, "key", "tls.key", c.TLS.Key)
		root.set("tls", tls)
	}
	if len(c.CORS.Origins) > 0 {
		root.set("cors", mapNode(pair{key: "origins", value: shownList(c.CORS.Origins, "cors.origins", c.hidden)}))
	}
	if len(c.Auth.Tokens) > 0 {
		tokens := &node{kind: kindList}
		for _, t := range c.Auth.Tokens {
			tokens.items = append(tokens.items, mapNode(
				pair{key: "name", value: stringNode(t.Name)}, pair{key: "token", value: stringNode(mask)}))
		}
		root.set("auth", mapNode(pair{key: "tokens", value: tokens}))
	}
	root.set("limits", shownLimits(c.Limits))
	root.set("log", mapNode(pair{key: "level", value: stringNode(c.Log.Level)}, pair{key: "format", value: stringNode(c.Log.Format)}))
	root.set("separator", stringNode(c.Separator))
	root.set("long_names", stringNode(c.LongNames))
	if c.DefaultView != "" {
		root.set("default_view", stringNode(c.DefaultView))
	}
	servers := mapNode()
	for i := range c.Servers {
		s := &c.Servers[i]
		p := pair{key: s.ID, value: s.shown()}
		if s.Disabled != "" {
			p.comment = []string{s.Disabled}
		}
		servers.pairs = append(servers.pairs, p)
	}
	root.set("servers", servers)
	var b strings.Builder
	writeYAML(&b, root, 0)
	return []byte(b.String())
}

func shownLimits(l Limits) *node {
	n := mapNode()
	size := func(key string, v int64) {
		if s := formatSize(v); strings.HasSuffix(s, "B") {
			n.set(key, stringNode(s))
			return
		}
		n.set(key, intNode(v))
	}
	size("body", l.Body)
	size("header", int64(l.Header))
	size("message", l.Message)
	n.set("connections", intNode(int64(l.Connections)))
	n.set("calls", intNode(int64(l.Calls)))
	for _, d := range []struct {
		key string
		d   time.Duration
	}{{"list_wait", l.ListWait}, {"idle", l.Idle}, {"drain", l.Drain}} {
		n.set(d.key, stringNode(brief(d.d)))
	}
	return n
}

func shownList(list []string, rel string, hidden map[string]bool) *node {
	n := &node{kind: kindList}
	for i, v := range list {
		if hidden[rel+"."+itoa(i)] && v != "" {
			v = mask
		}
		n.items = append(n.items, stringNode(v))
	}
	return n
}

// shown is the server's entry with every secret masked.
func (s *Server) shown() *node {
	n := mapNode()
	str := func(key, v string) {
		if v != "" {
			n.set(key, stringNode(s.shownText(key, v)))
		}
	}
	str("title", s.Title)
	n.set("driver", stringNode(s.Driver))
	switch s.Driver {
	case "url":
		n.set("url", stringNode(s.Target()))
		n.setMap("headers", s.Headers, func(string, string) string { return mask })
		n.set("transport", stringNode(s.Transport))
		str("ca_file", s.CAFile)
	case "builtin":
		str("builtin", s.Builtin)
		if len(s.Settings) > 0 {
			n.set("settings", shownAny("settings", s.Settings, s.hidden))
		}
	default:
		str("command", s.Command)
		if len(s.Args) > 0 {
			n.set("args", listNode(s.shownArgs()...))
		}
		n.setMap("env", s.Env, s.shownEnv)
		str("env_file", s.EnvFile)
		str("cwd", s.Cwd)
	}
	n.set("scope", stringNode(s.Scope))
	n.set("enabled", boolNode(s.Enabled))
	n.set("eager", boolNode(s.Eager))
	n.set("protocol", stringNode(s.Protocol))
	n.set("client_capabilities", listNode(s.ClientCapabilities...))
	if t := s.shownTools(); len(t.pairs) > 0 {
		n.set("tools", t)
	}
	n.set("connect_timeout", stringNode(brief(s.ConnectTimeout)))
	n.set("timeout", stringNode(brief(s.Timeout)))
	return n
}

func (s *Server) shownEnv(name, value string) string {
	switch {
	case value == "":
		return ""
	case s.hidden["env."+name] || secretName(name) || secretText.MatchString(value):
		return mask
	}
	return RedactURL(value)
}

func (s *Server) shownTools() *node {
	n := mapNode()
	if len(s.Tools.Allow) > 0 {
		n.set("allow", shownList(s.Tools.Allow, "tools.allow", s.hidden))
	}
	if len(s.Tools.Deny) > 0 {
		n.set("deny", shownList(s.Tools.Deny, "tools.deny", s.hidden))
	}
	for key, m := range map[string]map[string]string{"rename": s.Tools.Rename, "describe": s.Tools.Describe} {
		n.setMap(key, m, func(name, v string) string { return s.shownText("tools."+key+"."+name, v) })
	}
	sort.Slice(n.pairs, func(i, j int) bool { return n.pairs[i].key < n.pairs[j].key })
	return n
}

// setMap sets a map of strings in the order of its keys, each value as show
// gives it. An empty map is left out.
func (n *node) setMap(key string, m map[string]string, show func(name, value string) string) {
	if len(m) == 0 {
		return
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	out := mapNode()
	for _, name := range names {
		out.pairs = append(out.pairs, pair{key: name, value: stringNode(show(name, m[name]))})
	}
	n.set(key, out)
}

// shownAny writes a setting, whatever it is.
func shownAny(rel string, v any, hidden map[string]bool) *node {
	if hidden[rel] {
		return stringNode(mask)
	}
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		n := mapNode()
		for _, name := range names {
			child := shownAny(join(rel, name), v[name], hidden)
			if child.kind == kindString && child.text != "" && secretName(name) {
				child = stringNode(mask)
			}
			n.pairs = append(n.pairs, pair{key: name, value: child})
		}
		return n
	case []any:
		n := &node{kind: kindList}
		for i, item := range v {
			n.items = append(n.items, shownAny(rel+"."+itoa(i), item, hidden))
		}
		return n
	case string:
		return stringNode(RedactURL(v))
	case bool:
		return boolNode(v)
	case int64:
		return intNode(v)
	case float64:
		return &node{kind: kindFloat, text: strconv.FormatFloat(v, 'g', -1, 64)}
	default:
		return &node{kind: kindNull}
	}
}
