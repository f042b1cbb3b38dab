package config

import "strings"

// Marshal writes a resolved config as YAML for people to read: every default
// filled in, secrets masked. Loaded again it means the same, except for what is masked
// and what is filled in when a server starts.
func Marshal(c *Config) []byte {
	root := topTable.show(c, Place{hidden: c.hidden})
	servers := MapNode()
	for i := range c.Servers {
		s := &c.Servers[i]
		p := Pair{Key: s.ID, Value: s.shown()}
		if s.Preset != "" {
			p.comment = append(p.comment, "made of preset: "+s.Preset)
		}
		if s.Disabled != "" {
			p.comment = append(p.comment, s.Disabled)
		}
		servers.Pairs = append(servers.Pairs, p)
	}
	root.Set("servers", servers)
	var b strings.Builder
	writeYAML(&b, root, 0)
	return []byte(b.String())
}

// setText adds what is given, masked where it is hidden.
func (n *Node) setText(key, v, rel string, hidden map[string]bool) {
	if v == "" {
		return
	}
	if hidden[rel] {
		v = mask
	}
	n.Set(key, StringNode(v))
}
