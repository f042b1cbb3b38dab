package config

import (
	"sort"
	"strings"
)

// Marshal writes a resolved config as YAML for people to read: every default
// filled in, every secret masked. It can't be loaded again.
func Marshal(c *Config) []byte {
	root := mapNode()
	// A listen address is not a secret, wherever it came from.
	root.set("listen", stringNode(c.Listen))
	root.setText("public_url", c.PublicURL, "public_url", c.hidden)
	if c.TLS.Cert != "" {
		tls := mapNode()
		tls.setText("cert", c.TLS.Cert, "tls.cert", c.hidden)
		tls.setText("key", c.TLS.Key, "tls.key", c.hidden)
		root.set("tls", tls)
	}
	if len(c.CORS.Origins) > 0 {
		root.set("cors", mapNode(pair{key: "origins", value: shownList(c.CORS.Origins, "cors.origins", c.hidden)}))
	}
	if auth := c.shownAuth(); len(auth.pairs) > 0 {
		root.set("auth", auth)
	}
	root.set("limits", shownLimits(c.Limits))
	root.set("log", mapNode(pair{key: "level", value: stringNode(c.Log.Level)}, pair{key: "format", value: stringNode(c.Log.Format)}))
	root.set("journal", mapNode(
		pair{key: "mode", value: stringNode(c.Journal.Mode)},
		pair{key: "max_age", value: durationNode(c.Journal.MaxAge)},
		pair{key: "max_size", value: sizeNode(c.Journal.MaxSize)}))
	if otlp := c.shownOTLP(); len(otlp.pairs) > 0 {
		root.set("telemetry", mapNode(pair{key: "otlp", value: otlp}))
	}
	root.set("sessions", c.Sessions.shown(c.hidden))
	root.set("workspace", c.Workspace.shown(c.hidden))
	root.setList("template_roots", c.TemplateRoots, "template_roots", c.hidden)
	root.setText("sandbox_binary", c.SandboxBinary, "sandbox_binary", c.hidden)
	root.set("separator", stringNode(c.Separator))
	root.set("long_names", stringNode(c.LongNames))
	root.set("errors", stringNode(c.Errors))
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
	return mapNode(
		pair{key: "body", value: sizeNode(l.Body)},
		pair{key: "header", value: sizeNode(int64(l.Header))},
		pair{key: "message", value: sizeNode(l.Message)},
		pair{key: "connections", value: intNode(int64(l.Connections))},
		pair{key: "calls", value: intNode(int64(l.Calls))},
		pair{key: "list_wait", value: durationNode(l.ListWait)},
		pair{key: "fetch", value: durationNode(l.Fetch)},
		pair{key: "idle", value: durationNode(l.Idle)},
		pair{key: "drain", value: durationNode(l.Drain)})
}

func (c *Config) shownAuth() *node {
	auth := mapNode()
	if len(c.Auth.Tokens) > 0 {
		tokens := &node{kind: kindList}
		for _, t := range c.Auth.Tokens {
			// A hash is masked as well: it tells a weak token to who can guess.
			kind := "token"
			if t.Hash != "" {
				kind = "hash"
			}
			tokens.items = append(tokens.items, mapNode(
				pair{key: "name", value: stringNode(t.Name)},
				pair{key: kind, value: stringNode(mask)},
				pair{key: "role", value: stringNode(t.Role)}))
		}
		auth.set("tokens", tokens)
	}
	if o := c.Auth.OIDC; o != nil {
		n := mapNode()
		n.setText("issuer", o.Issuer, "auth.oidc.issuer", c.hidden)
		n.setList("audience", o.Audience, "auth.oidc.audience", c.hidden)
		n.setList("scopes", o.Scopes, "auth.oidc.scopes", c.hidden)
		n.setText("principal", o.Principal, "auth.oidc.principal", c.hidden)
		n.setList("algorithms", o.Algorithms, "", nil)
		n.setText("ca_file", o.CAFile, "auth.oidc.ca_file", c.hidden)
		auth.set("oidc", n)
	}
	if len(c.Auth.Rules) > 0 {
		rules := &node{kind: kindList}
		for i, r := range c.Auth.Rules {
			rules.items = append(rules.items, r.shown("auth.rules."+itoa(i), c.hidden))
		}
		auth.set("rules", rules)
	}
	return auth
}

func (r Rule) shown(rel string, hidden map[string]bool) *node {
	n := mapNode()
	n.setList("principals", r.Principals, rel+".principals", hidden)
	if len(r.Claims) > 0 {
		names := make([]string, 0, len(r.Claims))
		for name := range r.Claims {
			names = append(names, name)
		}
		sort.Strings(names)
		claims := mapNode()
		for _, name := range names {
			claims.setList(name, r.Claims[name], join(rel+".claims", name), hidden)
		}
		n.set("claims", claims)
	}
	n.set("role", stringNode(r.Role))
	n.setList("servers", r.Servers, rel+".servers", hidden)
	n.setList("tools", r.Tools, rel+".tools", hidden)
	n.setList("prompts", r.Prompts, rel+".prompts", hidden)
	n.setList("resources", r.Resources, rel+".resources", hidden)
	if r.Rate.Calls > 0 {
		n.set("rate", r.Rate.Filled().shown())
	}
	return n
}

// shownOTLP is empty where no traces are sent.
func (c *Config) shownOTLP() *node {
	o, n := c.Telemetry.OTLP, mapNode()
	if o.Endpoint == "" {
		return n
	}
	n.setText("endpoint", RedactURL(o.Endpoint), "telemetry.otlp.endpoint", c.hidden)
	n.setMap("headers", o.Headers, func(string, string) string { return mask })
	n.set("sample", numberNode(o.Sample))
	n.setText("ca_file", o.CAFile, "telemetry.otlp.ca_file", c.hidden)
	return n
}

// setText and setList add what is given, masked where it is hidden.
func (n *node) setText(key, v, rel string, hidden map[string]bool) {
	if v == "" {
		return
	}
	if hidden[rel] {
		v = mask
	}
	n.set(key, stringNode(v))
}

func (n *node) setList(key string, list []string, rel string, hidden map[string]bool) {
	if len(list) > 0 {
		n.set(key, shownList(list, rel, hidden))
	}
}
