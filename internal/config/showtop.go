package config

import "strings"

// Marshal writes a resolved config as YAML for people to read: every default
// filled in, secrets masked. It can't be loaded again.
func Marshal(c *Config) []byte {
	root := topTable.show(c, Place{hidden: c.hidden})
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
