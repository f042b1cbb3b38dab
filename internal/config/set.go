package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// settable are the keys of an entry that don't change what is run, so that they
// can be set at run time.
var settable = []string{"timeout", "connect_timeout", "policy", "journal", "headers", "auth", "tools"}

// With lays settings over an entry: a JSON object of keys as they stand below
// servers.ID, of which maps are merged and everything else is replaced. It
// returns the changed entry and the dotted keys that were set. The entry it is
// called on stays as it is.
//
// Placeholders are refused. Settings come over the API and outlive the process:
// resolved, they would hand out the variables and files of the gateway to who
// may set a header; left as they are, a server would be sent "${TOKEN}".
func (s Server) With(set []byte) (Server, []string, error) {
	root, err := readSet(set)
	if err != nil {
		return s, nil, fmt.Errorf("server %q: %w", s.ID, err)
	}
	d := &decoder{}
	at := join("servers", s.ID)
	d.checkSettable(root, &s, at)
	d.noPlaceholders(root, at)
	d.ownSecret(root, &s, at)
	keys := leaves(root, "")
	out := s
	out.hidden = maps.Clone(s.hidden)
	if out.hidden == nil {
		out.hidden = map[string]bool{}
	}
	for _, key := range keys {
		delete(out.hidden, key)
		// What is set to call a server with has no other way to be kept from view.
		if strings.HasPrefix(key, "headers.") || key == "auth.client_secret" {
			out.hidden[key] = true
		}
	}
	if s.derived.maxTimeout {
		out.Policy.MaxTimeout = 0
	}
	if s.derived.burst {
		out.Policy.Rate.Burst = 0
	}
	o := object{d: d, n: root, path: at, hidden: out.hidden}
	d.timeouts(o, &out)
	d.headers(o, &out.Headers)
	d.serverAuth(o, &out)
	d.policy(o, &out)
	o.oneOf("journal", &out.Journal, journalModes...)
	d.tools(o, &out)
	if err := d.err(); err != nil {
		return s, nil, err
	}
	out.derived = derived{}
	out.derive()
	out.found(keys)
	return out, keys, nil
}

func (d *decoder) checkSettable(root *node, s *Server, at string) {
	way := s.Driver
	if way == "process" || way == "sandbox" {
		way = "command"
	}
	for _, p := range root.pairs {
		wrong := goesWith(p.key, way)
		switch {
		case slices.Contains(settable, p.key) && wrong == "":
		case slices.Contains(settable, p.key):
			d.fail(p.keyPos, "%s.%s: %s", at, p.key, wrong)
		case slices.Contains(serverKeys, p.key):
			d.fail(p.keyPos, "%s.%s: can't be set at run time, change it in the config; what can be set is %s", at, p.key, orList(settable))
		default:
			d.fail(p.keyPos, "%s", unknownKey(p.key, at, settable))
		}
	}
}

func (d *decoder) noPlaceholders(n *node, path string) {
	if n.kind == kindString && strings.Contains(n.text, "${") {
		d.fail(n.pos, "%s: placeholders are resolved in the config only; write the value itself", path)
	}
	for _, item := range n.items {
		d.noPlaceholders(item, path)
	}
	for _, p := range n.pairs {
		d.noPlaceholders(p.value, join(path, p.key))
	}
}

// ownSecret keeps the client secret of the config away from addresses that are
// set at run time: who may set one need not know the secret.
func (d *decoder) ownSecret(root *node, s *Server, at string) {
	auth := root.get("auth")
	if auth == nil || s.Auth.ClientSecret == "" || auth.get("client_secret") != nil {
		return
	}
	for _, key := range []string{"token_url", "auth_url"} {
		if n := auth.get(key); n != nil {
			d.fail(n.pos, "%s.auth.%s: the client secret of the config is not sent to an address that is set at run time; set auth.client_secret with it, or change both in the config", at, key)
		}
	}
}

// found takes back that a server is off for want of values that are set now.
// Commands are off for other reasons too, which are not told apart.
func (s *Server) found(keys []string) {
	if len(s.gone) == 0 || s.Driver != "url" && s.Driver != "remote" {
		return
	}
	s.gone = slices.DeleteFunc(slices.Clone(s.gone), func(g gone) bool {
		name, _, _ := strings.Cut(g.key, "[")
		return slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(k, name) })
	})
	s.Disabled = s.offBecause()
}

// MergeSet lays settings over others, the way With lays them over an entry.
func MergeSet(old, set []byte) ([]byte, error) {
	base, err := readSet(old)
	if err != nil {
		return nil, fmt.Errorf("what was set before: %w", err)
	}
	top, err := readSet(set)
	if err != nil {
		return nil, err
	}
	base.merge(top, "")
	return base.settings(), nil
}

// UnsetKeys takes keys such as policy.retry out of settings, with all that is
// below them.
func UnsetKeys(old []byte, keys []string) ([]byte, error) {
	root, err := readSet(old)
	if err != nil {
		return nil, fmt.Errorf("what was set before: %w", err)
	}
	// All are looked for first: one may be a part of another.
	for _, key := range keys {
		if !root.clone().unset(key, "") {
			set := "nothing is"
			if all := leaves(root, ""); len(all) > 0 {
				set = "set are " + strings.Join(all, ", ")
			}
			return nil, fmt.Errorf("key %q is not set; %s", clip(key), set)
		}
	}
	for _, key := range keys {
		root.unset(key, "")
	}
	return root.settings(), nil
}

// readSet reads settings into a tree. Nothing at all is no settings.
func readSet(data []byte) (*node, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return mapNode(), nil
	}
	if len(data) > maxYAMLBytes {
		return nil, errors.New("the settings are larger than 1 MiB")
	}
	t, err := readTree(data, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("the settings can't be read: %w", err)
	case !t.json || t.root.kind != kindMap:
		return nil, errors.New(`settings are a JSON object of keys of the server's entry, like {"timeout": "30s"}`)
	case len(t.dups) > 0:
		return nil, fmt.Errorf("key %q stands twice in the settings; keep one", clip(t.dups[0].key))
	}
	return t.root, checkSet(t.root, "")
}

// checkSet refuses what has no dotted key, and what looks like an unset.
func checkSet(n *node, path string) error {
	for _, p := range n.pairs {
		at := join(path, p.key)
		switch {
		case p.key == "":
			return fmt.Errorf("%sa key is empty", prefix(clip(path)))
		case p.value.kind == kindNull:
			return fmt.Errorf("%s: is null; unset it to go back to the config", clip(at))
		}
		if err := checkSet(p.value, at); err != nil {
			return err
		}
	}
	return nil
}

// leaves are the dotted keys of everything below n that is no map, sorted.
func leaves(n *node, path string) []string {
	var keys []string
	for _, p := range n.pairs {
		at := join(path, p.key)
		if p.value.kind == kindMap {
			keys = append(keys, leaves(p.value, at)...)
		} else {
			keys = append(keys, at)
		}
	}
	slices.Sort(keys)
	return keys
}

// sameKey compares keys of the map at path: case makes no other header.
func sameKey(path, a, b string) bool {
	return a == b || path == "headers" && strings.EqualFold(a, b)
}

func (n *node) merge(top *node, path string) {
	for _, p := range top.pairs {
		i := slices.IndexFunc(n.pairs, func(q pair) bool { return sameKey(path, q.key, p.key) })
		switch {
		case i < 0:
			n.pairs = append(n.pairs, p)
		case n.pairs[i].value.kind == kindMap && p.value.kind == kindMap:
			n.pairs[i].value.merge(p.value, join(path, p.key))
		default:
			n.pairs[i] = p
		}
	}
}

// unset removes a dotted key and reports whether it was there. Names may hold
// dots themselves, so that every way to cut it is tried, the whole first.
func (n *node) unset(key, path string) bool {
	for i, p := range n.pairs {
		if sameKey(path, p.key, key) {
			n.pairs = slices.Delete(n.pairs, i, i+1)
			return true
		}
	}
	for _, p := range n.pairs {
		if rest, ok := strings.CutPrefix(key, p.key+"."); ok && p.value.unset(rest, join(path, p.key)) {
			return true
		}
	}
	return false
}

// settings writes a tree as JSON, without maps that hold nothing.
func (n *node) settings() []byte {
	var b bytes.Buffer
	n.prune()
	n.writeJSON(&b)
	return b.Bytes()
}

func (n *node) prune() {
	n.pairs = slices.DeleteFunc(n.pairs, func(p pair) bool {
		p.value.prune()
		return p.value.kind == kindMap && len(p.value.pairs) == 0
	})
}

func (n *node) writeJSON(b *bytes.Buffer) {
	text := func(s string) {
		quoted, _ := json.Marshal(s) // a string always can be
		b.Write(quoted)
	}
	switch n.kind {
	case kindString:
		text(n.text)
	case kindList:
		b.WriteByte('[')
		for i, item := range n.items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.writeJSON(b)
		}
		b.WriteByte(']')
	case kindMap:
		b.WriteByte('{')
		for i, p := range n.pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			text(p.key)
			b.WriteByte(':')
			p.value.writeJSON(b)
		}
		b.WriteByte('}')
	default:
		b.WriteString(n.text)
	}
}
