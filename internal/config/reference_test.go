package config

import (
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A section is a table of the reference: its keys, and what stands before each.
type section struct {
	prefix string
	keys   []About
}

// sections are all of them, when drivers have added theirs.
var sections = sync.OnceValue(func() map[string]section {
	return map[string]section{
		"top":          {"", topTable.About()},
		"auth.tokens":  {"", tokenTable.About()},
		"auth.oidc":    {"auth.oidc.", oidcTable.About()},
		"auth.rules":   {"", ruleTable.About()},
		"limits":       {"limits.", limitsTable.About()},
		"journal":      {"journal.", journalTable.About()},
		"sessions":     {"sessions.", sessionsTable.About()},
		"telemetry":    {"telemetry.otlp.", otlpTable.About()},
		"environments": {"", environmentTable.About()},
		"agents":       {"agents.", agentsTable.About()},
		"executors":    {"", executorTable.About()},
		"servers":      {"", serverTable.About()},
		"sandbox":      {"sandbox.", kindOf("sandbox").Keys},
		"docker":       {"docker.", kindOf("docker").Keys},
		"remote":       {"remote.", kindOf("remote").Keys},
		"tools":        {"tools.", toolsTable.About()},
		"server.auth":  {"auth.", serverAuthTable.About()},
		"policy":       {"policy.", policyTable.About()},
	}
})

// apart are keys whose map has a section of its own.
var apart = map[string]bool{
	"agents": true, "auth": true, "limits": true, "journal": true, "telemetry": true, "sessions": true, "workspace": true, "rate": true,
	"docker": true, "remote": true, "sandbox": true, "tools": true, "policy": true,
}

// reference writes the table of a section.
func reference(name string) string {
	s := sections()[name]
	var rows []About
	var flatten func(prefix string, keys []About)
	flatten = func(prefix string, keys []About) {
		for _, k := range keys {
			below := k.Keys
			if prefix == "" && apart[k.Name] || k.List {
				below = nil
			}
			name := k.Name
			k.Name = prefix + name
			if len(below) == 0 || k.Schema != nil {
				rows = append(rows, k)
			}
			for i := range below {
				if below[i].Goes == "" {
					below[i].Goes = k.Goes
				}
			}
			flatten(k.Name+".", below)
		}
	}
	flatten(s.prefix, s.keys)
	columns := []struct {
		name string
		of   func(a About) string
	}{
		{"key", func(a About) string { return "`" + a.Name + "`" }},
		{"goes with", func(a About) string { return a.Goes }},
		{"type", func(a About) string { return a.Type }},
		{"default", func(a About) string { return a.Default }},
		{"range", func(a About) string { return a.Range }},
		{"meaning", func(a About) string { return a.Meaning }},
	}
	head, rule, lines := "|", "|", make([]string, len(rows))
	for _, c := range columns {
		used := c.name == "type"
		for _, r := range rows {
			used = used || c.of(r) != ""
		}
		if !used {
			continue
		}
		head, rule = head+" "+c.name+" |", rule+"---|"
		for i, r := range rows {
			lines[i] += strings.TrimSuffix("| "+strings.ReplaceAll(c.of(r), "|", `\|`), " ") + " "
		}
	}
	return head + "\n" + rule + "\n" + strings.Join(lines, "|\n") + "|\n"
}

var generated = regexp.MustCompile(`(?s)<!-- keys of ([a-z.]+) -->\n.*?<!-- end -->\n`)

// The tables of the reference are those of the program; go test -update writes them.
func TestReference(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	out := generated.ReplaceAllStringFunc(string(data), func(block string) string {
		name := generated.FindStringSubmatch(block)[1]
		if _, ok := sections()[name]; !ok || seen[name] {
			t.Errorf("%s: the section %q is not known, or is there twice", docsPath, name)
		}
		seen[name] = true
		return "<!-- keys of " + name + " -->\n" + reference(name) + "<!-- end -->\n"
	})
	for name := range sections() {
		if !seen[name] {
			t.Errorf("%s has no section of %s", docsPath, name)
		}
	}
	if out == string(data) {
		return
	}
	if !*update {
		t.Fatalf("the tables of %s are not those of the program; write them with: go test ./internal/config -run TestReference -update", docsPath)
	}
	if err := os.WriteFile(docsPath, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}
