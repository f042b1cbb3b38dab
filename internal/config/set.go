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

// Settable describes the keys that can be set at run time, each with its whole name.
func Settable() []About {
	var all []About
	var add func(prefix string, keys []About)
	add = func(prefix string, keys []About) {
		for _, k := range keys {
			if prefix == "" && !slices.Contains(settable, k.Name) {
				continue
			}
			below := k.Keys
			k.Name = join(prefix, k.Name)
			if len(below) == 0 {
				all = append(all, k)
			}
			add(k.Name, below)
		}
	}
	add("", serverTable.About())
	return all
}

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
	d := &decoder{entryKeys: serverTable.About()}
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
		if strings.HasPrefix(key, "headers.") || key == "auth.client_secret" || key == "auth.private_key" {
			out.hidden[key] = true
		}
	}
	if s.derived.maxTimeout {
		out.Policy.MaxTimeout = 0
	}
	if s.derived.burst {
		out.Policy.Rate.Burst = 0
	}
	o := Object{d: d, n: root, Path: at, hidden: out.hidden}
	serverTable.Read(o, &out, settable...)
	d.authFits(o, &out)
	d.policyFits(o, &out)
	if err := d.err(); err != nil {
		return s, nil, err
	}
	out.derived = derived{}
	out.derive()
	out.found(keys)
	return out, keys, nil
}

func (d *decoder) checkSettable(root *Node, s *Server, at string) {
	way := s.Driver
	if way == "process" || s.kind != nil && s.kind.Around != "" {
		way = "command"
	}
	for _, p := range root.Pairs {
		wrong := goesWith(p.Key, way)
		switch {
		case slices.Contains(settable, p.Key) && wrong == "":
		case slices.Contains(settable, p.Key):
			d.fail(p.KeyPos, "%s.%s: %s", at, p.Key, wrong)
		case slices.Contains(serverTable.Names(), p.Key):
			d.fail(p.KeyPos, "%s.%s: can't be set at run time, change it in the config; what can be set is %s", at, p.Key, OrList(settable))
		default:
			d.unknownKey(p, at, settable, root)
		}
	}
}

func (d *decoder) noPlaceholders(n *Node, path string) {
	if n.Shape == ShapeString && strings.Contains(n.Text, "${") {
		d.fail(n.Pos, "%s: placeholders are resolved in the config only; write the value itself", path)
	}
	for _, item := range n.Items {
		d.noPlaceholders(item, path)
	}
	for _, p := range n.Pairs {
		d.noPlaceholders(p.Value, join(path, p.Key))
	}
}

// ownSecret keeps the client secret and the key of the config away from addresses
// that are set at run time: who may set one need not know the secret.
func (d *decoder) ownSecret(root *Node, s *Server, at string) {
	auth := root.Get("auth")
	if auth == nil {
		return
	}
	for _, own := range []struct{ key, value, name string }{
		{"client_secret", s.Auth.ClientSecret, "client secret"}, {"private_key", s.Auth.PrivateKey, "private key"},
	} {
		if own.value == "" || auth.Get(own.key) != nil {
			continue
		}
		for _, key := range []string{"token_url", "auth_url", "issuer"} {
			if n := auth.Get(key); n != nil {
				d.fail(n.Pos, "%s.auth.%s: the %s of the config is not sent to an address that is set at run time; set auth.%s with it, or change both in the config", at, key, own.name, own.key)
			}
		}
	}
}

// found takes back that a server is off for want of values that are set now.
// Commands are off for other reasons too, which are not told apart.
func (s *Server) found(keys []string) {
	if len(s.gone) == 0 || s.Driver != "url" && (s.kind == nil || !s.kind.Remote) {
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
			return nil, fmt.Errorf("key %q is not set; %s", Clip(key), set)
		}
	}
	for _, key := range keys {
		root.unset(key, "")
	}
	return root.settings(), nil
}

// readSet reads settings into a tree. Nothing at all is no settings.
func readSet(data []byte) (*Node, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return MapNode(), nil
	}
	if len(data) > maxYAMLBytes {
		return nil, errors.New("the settings are larger than 1 MiB")
	}
	t, err := readTree(data, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("the settings can't be read: %w", err)
	case !t.json || t.root.Shape != ShapeMap:
		return nil, errors.New(`settings are a JSON object of keys of the server's entry, like {"timeout": "30s"}`)
	case len(t.dups) > 0:
		return nil, fmt.Errorf("key %q stands twice in the settings; keep one", Clip(t.dups[0].key))
	}
	return t.root, checkSet(t.root, "")
}

// checkSet refuses what has no dotted key, and what looks like an unset.
func checkSet(n *Node, path string) error {
	for _, p := range n.Pairs {
		at := join(path, p.Key)
		switch {
		case p.Key == "":
			return fmt.Errorf("%sa key is empty", prefix(Clip(path)))
		case p.Value.Shape == ShapeNull:
			return fmt.Errorf("%s: is null; unset it to go back to the config", Clip(at))
		}
		if err := checkSet(p.Value, at); err != nil {
			return err
		}
	}
	return nil
}

// leaves are the dotted keys of everything below n that is no map, sorted.
func leaves(n *Node, path string) []string {
	var keys []string
	for _, p := range n.Pairs {
		at := join(path, p.Key)
		if p.Value.Shape == ShapeMap {
			keys = append(keys, leaves(p.Value, at)...)
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

func (n *Node) merge(top *Node, path string) {
	for _, p := range top.Pairs {
		i := slices.IndexFunc(n.Pairs, func(q Pair) bool { return sameKey(path, q.Key, p.Key) })
		switch {
		case i < 0:
			n.Pairs = append(n.Pairs, p)
		case n.Pairs[i].Value.Shape == ShapeMap && p.Value.Shape == ShapeMap:
			n.Pairs[i].Value.merge(p.Value, join(path, p.Key))
		default:
			n.Pairs[i] = p
		}
	}
}

// unset removes a dotted key and reports whether it was there. Names may hold
// dots themselves, so that every way to cut it is tried, the whole first.
func (n *Node) unset(key, path string) bool {
	for i, p := range n.Pairs {
		if sameKey(path, p.Key, key) {
			n.Pairs = slices.Delete(n.Pairs, i, i+1)
			return true
		}
	}
	for _, p := range n.Pairs {
		if rest, ok := strings.CutPrefix(key, p.Key+"."); ok && p.Value.unset(rest, join(path, p.Key)) {
			return true
		}
	}
	return false
}

// settings writes a tree as JSON, without maps that hold nothing.
func (n *Node) settings() []byte {
	var b bytes.Buffer
	n.prune()
	n.writeJSON(&b)
	return b.Bytes()
}

func (n *Node) prune() {
	n.Pairs = slices.DeleteFunc(n.Pairs, func(p Pair) bool {
		p.Value.prune()
		return p.Value.Shape == ShapeMap && len(p.Value.Pairs) == 0
	})
}

func (n *Node) writeJSON(b *bytes.Buffer) {
	text := func(s string) {
		quoted, _ := json.Marshal(s) // a string always can be
		b.Write(quoted)
	}
	switch n.Shape {
	case ShapeString:
		text(n.Text)
	case ShapeList:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.writeJSON(b)
		}
		b.WriteByte(']')
	case ShapeMap:
		b.WriteByte('{')
		for i, p := range n.Pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			text(p.Key)
			b.WriteByte(':')
			p.Value.writeJSON(b)
		}
		b.WriteByte('}')
	default:
		b.WriteString(n.Text)
	}
}
