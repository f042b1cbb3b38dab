package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func fuzzOptions() Options {
	return Options{
		Path: "tine.yaml", Home: "/home/ada",
		Getenv: func(k string) (string, bool) {
			if k == "A" {
				return "${B}", true
			}
			return "", false
		},
		ReadFile: func(string) ([]byte, error) { return nil, errors.New("nothing is read here") },
		Memory:   func() int64 { return 16 << 30 },
		OS:       "linux",
	}
}

// FuzzParse holds that nothing in a file makes Parse panic, that whatever it
// accepts is whole, and that what it shows can be read again as YAML.
func FuzzParse(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/import/*.[jy]*")
	for _, s := range seeds {
		data, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(everyKey))
	f.Add([]byte(everywhere))
	f.Add([]byte(walled))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, fuzzOptions())
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || len(e.Problems) == 0 || len(e.Problems) > maxProblems {
				t.Fatalf("%T %v", err, err)
			}
		} else {
			whole(t, c)
			if _, err := readYAML(Marshal(c)); err != nil {
				t.Fatalf("what is shown can't be read: %v\n%s", err, Marshal(c))
			}
		}
		// Import loads its own result and says so when it can't.
		if _, _, err := Import(data, "x"); err != nil && strings.Contains(err.Error(), "does not load") {
			t.Fatal(err)
		}
	})
}

func whole(t *testing.T, c *Config) {
	seen := map[string]bool{}
	for i := range c.Servers {
		s := &c.Servers[i]
		if err := checkID(s.ID, c.Separator); err != nil || seen[s.ID] {
			t.Fatalf("id %q twice or wrong: %v", s.ID, err)
		}
		seen[s.ID] = true
		if s.Driver == "" || s.Scope == "" || s.Title == "" || s.Timeout <= 0 || s.ConnectTimeout <= 0 || s.Protocol == "" || s.ClientCapabilities == nil {
			t.Fatalf("default missing: %+v", s)
		}
		if s.Disabled == "" && s.Command == "" && s.URL == "" && s.Builtin == "" && s.Options == nil {
			t.Fatalf("nothing to run: %+v", s)
		}
		_ = s.Target()
		p := s.Policy
		if p.MaxTimeout < s.Timeout || p.Retry.Attempts < 1 || p.Retry.MaxPause < p.Retry.Pause || p.Breaker.Open <= 0 || p.Breaker.Probes < 1 ||
			p.Rate.Burst < 1 || p.Rate.Calls < 0 || p.Concurrency.Queue < 0 || s.Journal == "" || s.Credential == "" {
			t.Fatalf("policy: %+v", s)
		}
		if s.Workspace && (!c.Workspace.On || s.Disabled == "" && (s.Scope == ScopeShared || s.URL != "")) || s.Driver != "url" && s.Driver != "remote" && s.Budget.Memory <= 0 {
			t.Fatalf("workspace or budget: %+v", s)
		}
		if s.Disabled == "" && s.Scope == ScopeShared && s.Fork != "" && s.Fork != ForkShare {
			t.Fatalf("fork of what is shared: %+v", s)
		}
		texts := append(slices.Collect(maps.Values(s.Env)), append(s.Args, s.Cwd)...)
		if s.Driver == "docker" {
			texts = nil // nothing is filled in there
		}
		for _, text := range texts {
			for _, kept := range atStartPattern.FindAllString(text, -1) {
				declared := s.Workspace
				if name, ok := strings.CutPrefix(kept, "${state."); ok {
					declared = slices.ContainsFunc(s.State, func(d StateDir) bool { return d.Name+"}" == name })
				}
				if s.Disabled == "" && !declared {
					t.Fatalf("%s of nothing: %+v", kept, s)
				}
			}
		}
		if s.Disabled == "" && s.Options != nil {
			if err := WholeOptions(s); err != nil {
				t.Fatalf("%v: %+v of %+v", err, s.Options, s)
			}
		}
		if (s.Warm > 0 || s.ForkAhead || s.OnFork != nil) && s.Disabled == "" && (s.Driver != "sandbox" || s.Scope == ScopeShared) {
			t.Fatalf("copied: %+v", s)
		}
		if s.Settings == nil && s.Startup == nil { // JSON has one kind of number
			pin, err := s.Pin()
			if err != nil {
				t.Fatal(err)
			}
			if back, err := Unpin(pin); err != nil || !back.same(s) {
				t.Fatalf("%v: %+v was pinned and came back as %+v", err, s, back)
			}
		}
		if s.Auth.Type != "" && s.URL == "" && s.Driver != "remote" && s.Disabled == "" {
			t.Fatalf("auth of no url: %+v", s)
		}
	}
	for _, secret := range c.Secrets() {
		if len(secret) < minSecret {
			t.Fatalf("%q is too short to hide", secret)
		}
	}
	for _, tok := range c.Auth.Tokens {
		if (tok.Token == "") == (tok.Hash == "") || tok.Role == "" || strings.Contains(tok.Name, ":") {
			t.Fatalf("token: %+v", tok)
		}
	}
	if o := c.Auth.OIDC; o != nil && (o.Issuer == "" || o.Principal == "" || len(o.Algorithms) == 0) {
		t.Fatalf("oidc: %+v", o)
	}
	if err := c.CheckExposure(false); err != nil {
		t.Fatal(err)
	}
}

// FuzzSet holds that settings never panic, that an entry takes or refuses them
// whole, that merging is taking one after the other, and that whatever was set
// can be unset.
func FuzzSet(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"timeout": "1s"}`, `{"policy": {"retry": "off", "rate": {"calls": 1.5}}}`, `{"policy": {"retry": {"attempts": 3}}}`,
		`{"headers": {"A": "b", "a.b": "c"}}`, `{"headers": {"a": 1}}`, `{"auth": {"type": "login", "scopes": "a b"}}`, `{"tools": {"allow": ["a*"], "rename": {"a.b": "c", "a": "d"}}}`,
		`{"journal": "off", "x": null}`, `{"url": "${A}"}`, `{"a": {"b": {}}, "a.b": 1}`, "[1", "\xff",
	} {
		f.Add([]byte(s), []byte(`{"policy": {"retry": {"pause": "1s"}}, "headers": {"A": "c"}}`))
	}
	c, err := Parse([]byte("servers: {a: {url: 'http://x', headers: {X: y}, tools: {rename: {q: r}}}}"), fuzzOptions())
	if err != nil {
		f.Fatal(err)
	}
	base := c.Servers[0]
	f.Fuzz(func(t *testing.T, one, two []byte) {
		first, keys, err := base.With(one)
		if err != nil {
			if !first.same(&base) || keys != nil {
				t.Fatalf("refused and changed: %+v", first)
			}
		} else {
			whole(t, &Config{Listen: DefaultListen, Separator: DefaultSeparator, Servers: []Server{first}})
		}
		both, err2 := MergeSet(one, two)
		if err2 != nil {
			return
		}
		// Together they may go where one alone may not, and not the other way.
		if err == nil {
			after, _, err := first.With(two)
			merged, _, err2 := base.With(both)
			if err == nil && err2 == nil && !after.same(&merged) && !replacesMap(one, two) {
				t.Fatalf("%s then %s is\n%+v\nand merged to %s\n%+v", one, two, after, both, merged)
			}
		}
		root, err := readSet(both)
		if err != nil {
			t.Fatalf("%s and %s merged to %s: %v", one, two, both, err)
		}
		for _, key := range leaves(root, "") {
			if _, err := UnsetKeys(both, []string{key}); err != nil {
				t.Fatalf("%s: %v", both, err)
			}
		}
		rest, err := UnsetKeys(both, topLevel(root))
		if err != nil || string(rest) != "{}" {
			t.Fatalf("%s without all its keys is %s: %v", both, rest, err)
		}
	})
}

// replacesMap reports whether a short form and a map meet, of which merging
// keeps the last alone.
func replacesMap(one, two []byte) bool {
	return strings.Contains(string(one)+string(two), `"off"`)
}

func topLevel(n *Node) []string {
	var keys []string
	for _, p := range n.Pairs {
		keys = append(keys, p.Key)
	}
	return keys
}

// FuzzPlaceholders holds that text without placeholders stays as it is, that
// escaping is undone by reading, and that nothing is resolved twice.
func FuzzPlaceholders(f *testing.F) {
	for _, s := range []string{
		"", "plain", "$", "$$", "$${A}", "${A}", "${A:-x}", "${env:A}", "${env:N:-{a}}", "${file:/x}", "${input:k}",
		"${A", "${}", "${A:-${B}}", "a${/}b", "$$${A}", "${workspaceFolder}/x", "${workspace}/x", "${state.db}", "${state.}", "${workspace:-x}", "${x%y}", "é${A}\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		opts := fuzzOptions()
		r := &newDecoder(opts).res
		out, _, gone, err := r.expand(s)
		if err == nil && !strings.Contains(s, "${") && out != s {
			t.Fatalf("%q became %q", s, out)
		}
		escaped := strings.ReplaceAll(s, "${", "$${")
		plain, secret, more, err2 := r.expand(escaped)
		if err2 != nil || plain != s || secret || len(more) > 0 {
			t.Fatalf("%q escaped is %q and came back as %q: %v", s, escaped, plain, err2)
		}
		if err == nil && len(gone) == 0 && s == "<${A}>" && out != "<${B}>" {
			t.Fatalf("resolved twice: %q", out)
		}
	})
}

// FuzzScalar holds that what is written is read as the same string.
func FuzzScalar(f *testing.F) {
	for _, s := range []string{"", "a", "-", "- a", "-i", "--rm", "a: b", "a #b", "#", "1", "1e5", "0x1", "true", "~", "null", "é\u0085\u2028x", "a\nb\n", " a ", "\t", "@x", "=", "<<", "a:b", "a:", "---", "...", "😀", "\ufeff", "12:30", "1_000", "C:\\x", "'", "\"", "{a}", "[a", "a,b", "&a", "*a", "!a", "%a", "|", ">", "?", "? a", "`", "\x7f", "\r", "2026-07-28", "-.inf", ".", ".5", "..", "y", "No"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || strings.ContainsRune(s, 0) || len(s) > 10_000 {
			return
		}
		var b strings.Builder
		writeYAML(&b, MapNode(
			Pair{Key: "block", Value: MapNode(Pair{Key: "k" + s, Value: StringNode(s)})},
			Pair{Key: "flow", Value: ListNode(s, "x", s)},
		), 0)
		tr, err := readYAML([]byte(b.String()))
		if err != nil {
			t.Fatalf("%q: %v\n%s", s, err, b.String())
		}
		block, flow := tr.root.Get("block"), tr.root.Get("flow")
		if len(block.Pairs) != 1 || block.Pairs[0].Key != "k"+s || block.Pairs[0].Value.Text != s || block.Pairs[0].Value.Shape != ShapeString {
			t.Fatalf("%q came back as %+v\n%s", s, block.Pairs, b.String())
		}
		if len(flow.Items) != 3 || flow.Items[0].Text != s || flow.Items[2].Text != s || flow.Items[0].Shape != ShapeString {
			t.Fatalf("%q came back as %+v\n%s", s, flow.Items, b.String())
		}
	})
}

// FuzzID holds that any name becomes a valid id, the same each time.
func FuzzID(f *testing.F) {
	for _, s := range []string{"a", "a b", "@a/b", "a__b", "_", "tine", "a_-_b", "天気", "-_-_-"} {
		for _, sep := range []string{"__", "_", "-", ".", "-_", "_-_"} {
			f.Add(s, sep)
		}
	}
	f.Fuzz(func(t *testing.T, name, sep string) {
		if !separatorPattern.MatchString(sep) {
			return
		}
		id := sanitizeID(name, sep)
		if err := checkID(id, sep); err != nil {
			t.Fatal(err)
		}
		book := newIDBook([]string{id}, sep)
		if got := book.id(name + "!"); got == id || checkID(got, sep) != nil {
			t.Fatalf("%q became %q beside %q", name+"!", got, id)
		}
	})
}

// FuzzEdit looks for texts that a change breaks off over, or does not change back.
func FuzzEdit(f *testing.F) {
	f.Add("servers:\n  # a\n  a: {builtin: time}\n")
	f.Add("servers: {}\nlog: {level: warn}\n")
	f.Add("{\"mcpServers\": {\n  \"a\": {\"command\": \"a\"}, // x\n}}")
	f.Add("{\"servers\": {\"a\": {\"builtin\": \"time\"}}}")
	f.Add("servers: &s\n  a: &a {command: x,\n    args: [y]}\n  b: *a\n...\n")
	f.Fuzz(func(t *testing.T, text string) {
		opts := noEnv()
		opts.Path = "f"
		added, c, err := AddServer([]byte(text), opts, "fuzzed", Addition{Command: "npx", Args: []string{"-y"}})
		if err != nil {
			return
		}
		if !slices.ContainsFunc(c.Servers, func(s Server) bool { return s.ID == "fuzzed" && s.Command == "npx" }) {
			t.Fatalf("not there: %q", added)
		}
		if _, _, err := RemoveServer(added, opts, "fuzzed"); err != nil && !strings.Contains(err.Error(), "by hand") {
			t.Fatalf("%v: %q", err, added)
		}
	})
}
