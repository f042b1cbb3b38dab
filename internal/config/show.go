package config

import (
	"sort"
	"strconv"
)

func itoa(i int) string { return strconv.Itoa(i) }

func ShownList(list []string, rel string, hidden map[string]bool) *Node {
	n := &Node{Shape: ShapeList}
	for i, v := range list {
		if hidden[rel+"."+itoa(i)] && v != "" {
			v = mask
		}
		n.Items = append(n.Items, StringNode(shownText(v)))
	}
	return n
}

// shown is the server's entry with its secrets masked.
func (s *Server) shown() *Node {
	n := MapNode()
	str := func(key, v string) {
		if v != "" {
			n.Set(key, StringNode(s.ShownText(key, v)))
		}
	}
	str("title", s.Title)
	n.Set("driver", StringNode(s.Driver))
	if s.Front != "" {
		str("builtin", s.Front)
		if len(s.Settings) > 0 {
			n.Set("settings", shownAny("settings", s.Settings, s.hidden))
		}
	}
	k := s.kind
	if k != nil && k.Around == "" {
		n.Set(k.Name, k.show(s))
	}
	switch {
	case k != nil && k.Remote:
		s.showRequests(n)
	case k != nil && k.Around == "":
		n.setMap("env", s.Env, s.shownEnv)
		str("env_file", s.EnvFile)
	case s.Driver == "url":
		n.Set("url", StringNode(s.Target()))
		s.showRequests(n)
		if s.Auth.Type != "" {
			n.Set("credential", StringNode(s.Credential))
		}
	case s.Driver == "builtin":
		str("builtin", s.Builtin)
		if len(s.Settings) > 0 {
			n.Set("settings", shownAny("settings", s.Settings, s.hidden))
		}
	default:
		if s.Front == "" {
			str("command", s.Command)
			if len(s.Args) > 0 {
				n.Set("args", ListNode(s.ShownArgs()...))
			}
		}
		n.setMap("env", s.Env, s.shownEnv)
		str("env_file", s.EnvFile)
		str("cwd", s.Cwd)
		if k != nil {
			n.Set(k.Name, k.show(s))
		}
	}
	s.showRemembering(n)
	if s.Startup != nil {
		n.Set("startup", startupTable.show(s.Startup, Place{"startup", s.hidden}))
	}
	if s.Controls() {
		n.Set("merged", BoolNode(s.Merged))
	}
	n.Set("scope", StringNode(s.Scope))
	n.Set("enabled", BoolNode(s.Enabled))
	n.Set("eager", BoolNode(s.Eager))
	n.Set("protocol", StringNode(s.Protocol))
	n.Set("client_capabilities", ListNode(s.ClientCapabilities...))
	if t := toolsTable.showAny(s.Tools, Place{"tools", s.hidden}); t != nil {
		n.Set("tools", t)
	}
	n.Set("connect_timeout", DurationNode(s.ConnectTimeout))
	n.Set("timeout", DurationNode(s.Timeout))
	n.Set("policy", policyTable.show(&s.Policy, Place{"policy", s.hidden}))
	n.Set("journal", StringNode(s.Journal))
	if s.Errors != "" {
		n.Set("errors", StringNode(s.Errors))
	}
	return n
}

// showRequests adds what is sent with requests.
func (s *Server) showRequests(n *Node) {
	n.setMap("headers", s.Headers, func(string, string) string { return mask })
	if s.Transport != "" {
		n.Set("transport", StringNode(s.Transport))
	}
	if s.CAFile != "" {
		n.Set("ca_file", StringNode(s.ShownText("ca_file", s.CAFile)))
	}
	if s.Auth.Type != "" {
		n.Set("auth", serverAuthTable.show(&s.Auth, Place{"auth", s.hidden}))
	}
}

func (s *Server) shownEnv(name, value string) string {
	switch {
	case value == "":
		return ""
	case s.hidden["env."+name] || secretName(name):
		return mask
	}
	return shownText(value)
}

// setMap sets a map of strings in the order of its keys, each value as show
// gives it. An empty map is left out.
func (n *Node) setMap(key string, m map[string]string, show func(name, value string) string) {
	if len(m) == 0 {
		return
	}
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	out := MapNode()
	for _, name := range names {
		out.Pairs = append(out.Pairs, Pair{Key: name, Value: StringNode(show(name, m[name]))})
	}
	n.Set(key, out)
}

// shownAny writes a setting, whatever it is.
func shownAny(rel string, v any, hidden map[string]bool) *Node {
	if hidden[rel] {
		return StringNode(mask)
	}
	switch v := v.(type) {
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		sort.Strings(names)
		n := MapNode()
		for _, name := range names {
			child := shownAny(join(rel, name), v[name], hidden)
			if child.Shape == ShapeString && child.Text != "" && secretName(name) {
				child = StringNode(mask)
			}
			n.Pairs = append(n.Pairs, Pair{Key: name, Value: child})
		}
		return n
	case []any:
		n := &Node{Shape: ShapeList}
		for i, item := range v {
			n.Items = append(n.Items, shownAny(rel+"."+itoa(i), item, hidden))
		}
		return n
	case string:
		return StringNode(shownText(v))
	case bool:
		return BoolNode(v)
	case int64:
		return IntNode(v)
	case uint64:
		return &Node{Shape: ShapeInt, Text: strconv.FormatUint(v, 10)}
	case float64:
		return &Node{Shape: ShapeFloat, Text: strconv.FormatFloat(v, 'g', -1, 64)}
	default:
		return &Node{Shape: ShapeNull}
	}
}
