package config

import (
	"sort"
	"strings"
)

// Marshal writes a resolved config as YAML for people to read: every default
// filled in, every secret masked. It can't be loaded again.
func Marshal(c *Config) []byte {
	root := MapNode()
	// A listen address is not a secret, wherever it came from.
	root.Set("listen", StringNode(c.Listen))
	root.setText("public_url", c.PublicURL, "public_url", c.hidden)
	if c.TLS.Cert != "" {
		tls := MapNode()
		tls.setText("cert", c.TLS.Cert, "tls.cert", c.hidden)
		tls.setText("key", c.TLS.Key, "tls.key", c.hidden)
		root.Set("tls", tls)
	}
	if len(c.CORS.Origins) > 0 {
		root.Set("cors", MapNode(Pair{Key: "origins", Value: shownList(c.CORS.Origins, "cors.origins", c.hidden)}))
	}
	if auth := c.shownAuth(); len(auth.Pairs) > 0 {
		root.Set("auth", auth)
	}
	root.Set("limits", shownLimits(c.Limits))
	root.Set("log", MapNode(Pair{Key: "level", Value: StringNode(c.Log.Level)}, Pair{Key: "format", Value: StringNode(c.Log.Format)}))
	root.Set("journal", MapNode(
		Pair{Key: "mode", Value: StringNode(c.Journal.Mode)},
		Pair{Key: "max_age", Value: DurationNode(c.Journal.MaxAge)},
		Pair{Key: "max_size", Value: SizeNode(c.Journal.MaxSize)}))
	if otlp := c.shownOTLP(); len(otlp.Pairs) > 0 {
		root.Set("telemetry", MapNode(Pair{Key: "otlp", Value: otlp}))
	}
	root.Set("sessions", c.Sessions.shown(c.hidden))
	root.Set("workspace", c.Workspace.shown(c.hidden))
	root.setList("template_roots", c.TemplateRoots, "template_roots", c.hidden)
	root.setText("sandbox_binary", c.SandboxBinary, "sandbox_binary", c.hidden)
	root.Set("separator", StringNode(c.Separator))
	root.Set("long_names", StringNode(c.LongNames))
	root.Set("errors", StringNode(c.Errors))
	if c.DefaultView != "" {
		root.Set("default_view", StringNode(c.DefaultView))
	}
	servers := MapNode()
	for i := range c.Servers {
		s := &c.Servers[i]
		p := Pair{Key: s.ID, Value: s.shown()}
		if s.Disabled != "" {
			p.comment = []string{s.Disabled}
		}
		servers.Pairs = append(servers.Pairs, p)
	}
	root.Set("servers", servers)
	var b strings.Builder
	writeYAML(&b, root, 0)
	return []byte(b.String())
}

func shownLimits(l Limits) *Node {
	return MapNode(
		Pair{Key: "body", Value: SizeNode(l.Body)},
		Pair{Key: "header", Value: SizeNode(int64(l.Header))},
		Pair{Key: "message", Value: SizeNode(l.Message)},
		Pair{Key: "connections", Value: IntNode(int64(l.Connections))},
		Pair{Key: "calls", Value: IntNode(int64(l.Calls))},
		Pair{Key: "list_wait", Value: DurationNode(l.ListWait)},
		Pair{Key: "fetch", Value: DurationNode(l.Fetch)},
		Pair{Key: "idle", Value: DurationNode(l.Idle)},
		Pair{Key: "drain", Value: DurationNode(l.Drain)})
}

func (c *Config) shownAuth() *Node {
	auth := MapNode()
	if len(c.Auth.Tokens) > 0 {
		tokens := &Node{Shape: ShapeList}
		for _, t := range c.Auth.Tokens {
			// A hash is masked as well: it tells a weak token to who can guess.
			kind := "token"
			if t.Hash != "" {
				kind = "hash"
			}
			tokens.Items = append(tokens.Items, MapNode(
				Pair{Key: "name", Value: StringNode(t.Name)},
				Pair{Key: kind, Value: StringNode(mask)},
				Pair{Key: "role", Value: StringNode(t.Role)}))
		}
		auth.Set("tokens", tokens)
	}
	if o := c.Auth.OIDC; o != nil {
		n := MapNode()
		n.setText("issuer", o.Issuer, "auth.oidc.issuer", c.hidden)
		n.setList("audience", o.Audience, "auth.oidc.audience", c.hidden)
		n.setList("scopes", o.Scopes, "auth.oidc.scopes", c.hidden)
		n.setText("principal", o.Principal, "auth.oidc.principal", c.hidden)
		n.setList("algorithms", o.Algorithms, "", nil)
		n.setText("ca_file", o.CAFile, "auth.oidc.ca_file", c.hidden)
		auth.Set("oidc", n)
	}
	if len(c.Auth.Rules) > 0 {
		rules := &Node{Shape: ShapeList}
		for i, r := range c.Auth.Rules {
			rules.Items = append(rules.Items, r.shown("auth.rules."+itoa(i), c.hidden))
		}
		auth.Set("rules", rules)
	}
	return auth
}

func (r Rule) shown(rel string, hidden map[string]bool) *Node {
	n := MapNode()
	n.setList("principals", r.Principals, rel+".principals", hidden)
	if len(r.Claims) > 0 {
		names := make([]string, 0, len(r.Claims))
		for name := range r.Claims {
			names = append(names, name)
		}
		sort.Strings(names)
		claims := MapNode()
		for _, name := range names {
			claims.setList(name, r.Claims[name], join(rel+".claims", name), hidden)
		}
		n.Set("claims", claims)
	}
	n.Set("role", StringNode(r.Role))
	n.setList("servers", r.Servers, rel+".servers", hidden)
	n.setList("tools", r.Tools, rel+".tools", hidden)
	n.setList("prompts", r.Prompts, rel+".prompts", hidden)
	n.setList("resources", r.Resources, rel+".resources", hidden)
	if r.Rate.Calls > 0 {
		n.Set("rate", r.Rate.Filled().shown())
	}
	return n
}

// shownOTLP is empty where no traces are sent.
func (c *Config) shownOTLP() *Node {
	o, n := c.Telemetry.OTLP, MapNode()
	if o.Endpoint == "" {
		return n
	}
	n.setText("endpoint", RedactURL(o.Endpoint), "telemetry.otlp.endpoint", c.hidden)
	n.setMap("headers", o.Headers, func(string, string) string { return mask })
	n.Set("sample", NumberNode(o.Sample))
	n.setText("ca_file", o.CAFile, "telemetry.otlp.ca_file", c.hidden)
	return n
}

// setText and setList add what is given, masked where it is hidden.
func (n *Node) setText(key, v, rel string, hidden map[string]bool) {
	if v == "" {
		return
	}
	if hidden[rel] {
		v = mask
	}
	n.Set(key, StringNode(v))
}

func (n *Node) setList(key string, list []string, rel string, hidden map[string]bool) {
	if len(list) > 0 {
		n.Set(key, shownList(list, rel, hidden))
	}
}
