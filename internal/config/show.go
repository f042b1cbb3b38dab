package config

import (
	"sort"
	"strconv"
)

func itoa(i int) string { return strconv.Itoa(i) }

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
	if s.Preset != "" {
		n.set("preset", stringNode(s.Preset))
	}
	n.set("driver", stringNode(s.Driver))
	switch s.Driver {
	case "docker":
		if s.Docker != nil {
			n.set("docker", s.shownDocker())
		}
		n.setMap("env", s.Env, s.shownEnv)
		str("env_file", s.EnvFile)
	case "remote":
		if s.Remote != nil {
			n.set("remote", s.shownRemote())
		}
		n.setMap("headers", s.Headers, func(string, string) string { return mask })
		str("ca_file", s.CAFile)
		if s.Auth.Type != "" {
			n.set("auth", s.shownAuth())
		}
	case "url":
		n.set("url", stringNode(s.Target()))
		n.setMap("headers", s.Headers, func(string, string) string { return mask })
		n.set("transport", stringNode(s.Transport))
		str("ca_file", s.CAFile)
		if s.Auth.Type != "" {
			n.set("auth", s.shownAuth())
			n.set("credential", stringNode(s.Credential))
		}
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
		if s.Sandbox != nil {
			n.set("sandbox", s.shownSandbox())
		}
	}
	s.showRemembering(n)
	if s.Startup != nil {
		n.set("startup", s.shownStartup())
	}
	if s.Controls() {
		n.set("merged", boolNode(s.Merged))
	}
	n.set("scope", stringNode(s.Scope))
	n.set("enabled", boolNode(s.Enabled))
	n.set("eager", boolNode(s.Eager))
	n.set("protocol", stringNode(s.Protocol))
	n.set("client_capabilities", listNode(s.ClientCapabilities...))
	if t := s.shownTools(); len(t.pairs) > 0 {
		n.set("tools", t)
	}
	n.set("connect_timeout", durationNode(s.ConnectTimeout))
	n.set("timeout", durationNode(s.Timeout))
	n.set("policy", s.Policy.shown(s.hidden))
	n.set("journal", stringNode(s.Journal))
	if s.Errors != "" {
		n.set("errors", stringNode(s.Errors))
	}
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
	case uint64:
		return &node{kind: kindInt, text: strconv.FormatUint(v, 10)}
	case float64:
		return &node{kind: kindFloat, text: strconv.FormatFloat(v, 'g', -1, 64)}
	default:
		return &node{kind: kindNull}
	}
}
