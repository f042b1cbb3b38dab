package config

import (
	"net/http"
	"slices"
	"strings"
)

// RemoteServersVar is the variable that adds servers to any config, as a JSON
// array.
const RemoteServersVar = "MCP_REMOTE_SERVERS"

var remoteKeys = []string{"id", "name", "endpoint", "auth_type", "enabled", "header", "key_env", "key_file"}

// remoteServers appends the servers of the environment and returns what is
// wrong with them.
func (d *decoder) remoteServers(c *Config) []Problem {
	value, _ := d.opts.Getenv(RemoteServersVar)
	if strings.TrimSpace(value) == "" {
		return nil
	}
	r := &decoder{report: report{file: RemoteServersVar}, opts: d.opts, res: d.res, separator: c.Separator}
	t, err := readTree([]byte(value), "")
	if err != nil {
		r.unreadable(err)
		return r.problems
	}
	if t.root.kind != kindList {
		r.fail(t.root.pos, `want a JSON array, got %s; write [{"id": "x", "endpoint": "https://x.example.org/mcp"}]`, t.root.kind)
		return r.problems
	}
	r.duplicates(t)
	taken := map[string]bool{}
	for i := range c.Servers {
		taken[c.Servers[i].ID] = true
	}
	fromFile := len(c.Servers)
	for i, item := range t.root.items {
		s, at, ok := r.remoteServer(item, "["+itoa(i)+"]")
		if !ok {
			continue
		}
		if taken[s.ID] {
			if slices.ContainsFunc(c.Servers[fromFile:], func(o Server) bool { return o.ID == s.ID }) {
				r.fail(at, "id %q stands twice; give each server its own", s.ID)
			} else {
				r.warn(at, "server %q is in the config too; that one counts", s.ID)
			}
			continue
		}
		taken[s.ID] = true
		c.Servers = append(c.Servers, s)
	}
	d.warnings = append(d.warnings, r.warnings...)
	if r.err() != nil {
		return r.problems
	}
	return nil
}

// remoteServer reads one item by way of the tine.yaml entry that means the same.
func (d *decoder) remoteServer(n *node, path string) (s Server, at pos, ok bool) {
	before := len(d.problems)
	if n.kind != kindMap {
		d.fail(n.pos, "%s: want an object with id and endpoint, got %s", path, n.kind)
		return s, n.pos, false
	}
	// The format belongs to others as well; what only they know is no mistake.
	known := mapNode()
	known.pos = n.pos
	for _, p := range n.pairs {
		if slices.Contains(remoteKeys, p.key) {
			known.pairs = append(known.pairs, p)
		} else {
			d.warn(p.keyPos, "%s: key %q means nothing to Tine; known keys: %s", path, clip(p.key), strings.Join(remoteKeys, ", "))
		}
	}
	gone := d.resolve(known, path)
	o, _ := d.object(known, path, map[string]bool{}, remoteKeys)
	var id, name, header, keyEnv, keyFile string
	auth := "none"
	if !o.text("id", &id, `"x"`) && known.get("id") == nil {
		d.fail(n.pos, "%s: id is missing", path)
	} else if id != "" || known.get("id").kind == kindString {
		if err := checkID(id, d.separator); err != nil {
			d.fail(known.get("id").pos, "%s: %v", path, err)
		}
	}
	if known.get("endpoint") == nil {
		d.fail(n.pos, "%s: endpoint is missing; it is the server's URL", path)
	}
	o.text("name", &name, `"X"`)
	o.text("header", &header, `"X-API-Key"`)
	o.text("key_env", &keyEnv, `"X_API_KEY"`)
	o.text("key_file", &keyFile, `"/run/secrets/x"`)
	o.oneOf("auth_type", &auth, "none", "api-key", "oauth")
	if header == "" {
		header = "Authorization"
	}

	e := mapNode()
	e.pos = n.pos
	move := func(from, to string) {
		if v := known.get(from); v != nil {
			e.set(to, v)
		}
	}
	move("endpoint", "url")
	move("enabled", "enabled")
	key, off := d.remoteKey(auth, keyEnv, keyFile)
	if auth == "oauth" && key == "" && off == "" {
		e.set("auth", mapNode(pair{key: "type", value: stringNode(AuthLogin)}))
	}
	if key != "" {
		// A bare key stands in any other header than Authorization.
		if http.CanonicalHeaderKey(header) == "Authorization" {
			key = "Bearer " + key
		}
		at := n.pos
		if h := known.get("header"); h != nil {
			at = h.pos
		}
		e.set("headers", mapNode(pair{key: header, keyPos: at, value: &node{kind: kindString, pos: at, text: key, from: "the key"}}))
		e.get("headers").pos = at
	}
	s = d.server(id, e, n.pos, path)
	for i := range d.problems[before:] {
		m := &d.problems[before+i].Message
		*m = strings.Replace(*m, path+".url:", path+".endpoint:", 1)
	}
	if oneLine(name) != "" {
		s.Title = oneLine(name)
	}
	d.disable(&s, gone, path)
	if off != "" {
		s.Disabled = `server "` + id + `" is off: ` + off
		if s.Enabled {
			d.warn(n.pos, "%s", s.Disabled)
		}
	}
	return s, n.pos, len(d.problems) == before
}

// remoteKey finds the credential of an auth_type, or says why the server has to
// stay off.
func (d *decoder) remoteKey(auth, keyEnv, keyFile string) (key, off string) {
	switch {
	case auth == "none":
		return "", ""
	case keyEnv != "":
		v, _ := d.opts.Getenv(keyEnv)
		if key = strings.TrimSpace(v); key == "" {
			return "", "variable " + keyEnv + " (key_env) is not set; set it to the key"
		}
	case keyFile != "":
		v, gone := d.res.file(keyFile)
		if gone != nil {
			return "", gone.what + " (key_file); " + gone.mend
		}
		if key = strings.TrimSpace(v); key == "" {
			return "", "file " + keyFile + " (key_file) is empty; put the key in it"
		}
	case auth == "oauth":
		return "", "" // a person logs in
	default:
		return "", "auth_type api-key needs key_env or key_file, which say where the key is"
	}
	return key, ""
}
