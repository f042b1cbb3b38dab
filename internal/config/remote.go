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
	if t.root.Shape != ShapeList {
		r.fail(t.root.Pos, `want a JSON array, got %s; write [{"id": "x", "endpoint": "https://x.example.org/mcp"}]`, t.root.Shape)
		return r.problems
	}
	r.duplicates(t)
	taken := map[string]bool{}
	for i := range c.Servers {
		taken[c.Servers[i].ID] = true
	}
	fromFile := len(c.Servers)
	for i, item := range t.root.Items {
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
func (d *decoder) remoteServer(n *Node, path string) (s Server, at Pos, ok bool) {
	before := len(d.problems)
	if n.Shape != ShapeMap {
		d.fail(n.Pos, "%s: want an object with id and endpoint, got %s", path, n.Shape)
		return s, n.Pos, false
	}
	// The format belongs to others as well; what only they know is no mistake.
	known := MapNode()
	known.Pos = n.Pos
	for _, p := range n.Pairs {
		if slices.Contains(remoteKeys, p.Key) {
			known.Pairs = append(known.Pairs, p)
		} else {
			d.warn(p.KeyPos, "%s: key %q means nothing to Tine; known keys: %s", path, Clip(p.Key), strings.Join(remoteKeys, ", "))
		}
	}
	gone := d.resolve(known, path)
	o, _ := d.object(known, path, map[string]bool{}, remoteKeys)
	var id, name, header, keyEnv, keyFile string
	auth := "none"
	if !o.Text("id", &id, `"x"`) && known.Get("id") == nil {
		d.fail(n.Pos, "%s: id is missing", path)
	} else if id != "" || known.Get("id").Shape == ShapeString {
		if err := checkID(id, d.separator); err != nil {
			d.fail(known.Get("id").Pos, "%s: %v", path, err)
		}
	}
	if known.Get("endpoint") == nil {
		d.fail(n.Pos, "%s: endpoint is missing; it is the server's URL", path)
	}
	o.Text("name", &name, `"X"`)
	o.Text("header", &header, `"X-API-Key"`)
	o.Text("key_env", &keyEnv, `"X_API_KEY"`)
	o.Text("key_file", &keyFile, `"/run/secrets/x"`)
	o.OneOf("auth_type", &auth, "none", "api-key", "oauth")
	if header == "" {
		header = "Authorization"
	}

	e := MapNode()
	e.Pos = n.Pos
	move := func(from, to string) {
		if v := known.Get(from); v != nil {
			e.Set(to, v)
		}
	}
	move("endpoint", "url")
	move("enabled", "enabled")
	key, off := d.remoteKey(auth, keyEnv, keyFile)
	if auth == "oauth" && key == "" && off == "" {
		e.Set("auth", MapNode(Pair{Key: "type", Value: StringNode(AuthLogin)}))
	}
	if key != "" {
		// A bare key stands in any other header than Authorization.
		if http.CanonicalHeaderKey(header) == "Authorization" {
			key = "Bearer " + key
		}
		at := n.Pos
		if h := known.Get("header"); h != nil {
			at = h.Pos
		}
		e.Set("headers", MapNode(Pair{Key: header, KeyPos: at, Value: &Node{Shape: ShapeString, Pos: at, Text: key, From: "the key"}}))
		e.Get("headers").Pos = at
	}
	s = d.server(id, e, n.Pos, path)
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
			d.warn(n.Pos, "%s", s.Disabled)
		}
	}
	return s, n.Pos, len(d.problems) == before
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
