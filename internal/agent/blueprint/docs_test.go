package blueprint

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

var update = flag.Bool("update", false, "write the tables of the reference anew")

const docsPath = "../../../docs/agents.md"

var generated = regexp.MustCompile(`(?s)<!-- keys of ([a-z.]+) -->\n.*?<!-- end -->\n`)

// The tables of the reference are those of the program; go test -update writes them.
func TestReference(t *testing.T) {
	var below []config.About
	for _, part := range []struct {
		prefix string
		keys   []config.About
	}{{"demands.", demandsTable.About()}, {"limits.", limitsTable.About()}, {"hooks.", hooksTable.About()}} {
		for _, k := range part.keys {
			k.Name = part.prefix + k.Name
			below = append(below, k)
		}
	}
	sections := map[string][]config.About{"blueprint": blueprintTable.About(), "below": below, "hook": hookTable.About(), "capability": capabilityTable.About()}
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	out := generated.ReplaceAllStringFunc(string(data), func(block string) string {
		name := generated.FindStringSubmatch(block)[1]
		keys, ok := sections[name]
		if !ok {
			t.Errorf("%s: the section %q is not known", docsPath, name)
		}
		seen++
		var b strings.Builder
		b.WriteString("<!-- keys of " + name + " -->\n| key | type | default | meaning |\n|---|---|---|---|\n")
		for _, k := range keys {
			kind := k.Type
			if k.Range != "" {
				kind += ", " + k.Range
			}
			b.WriteString(strings.ReplaceAll("| `"+k.Name+"` | "+kind+" | "+k.Default+" | "+k.Meaning+" |\n", "|  |", "| |"))
		}
		return b.String() + "<!-- end -->\n"
	})
	if seen != len(sections) {
		t.Errorf("%s has %d sections of %d", docsPath, seen, len(sections))
	}
	if out == string(data) {
		return
	}
	if !*update {
		t.Fatalf("the tables of %s are not those of the program; write them with: go test ./internal/agent/blueprint -run TestReference -update", docsPath)
	}
	if err := os.WriteFile(docsPath, []byte(out), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The examples of the page are right.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yml\n(.*?)```").FindAllStringSubmatch(string(data), -1)
	for _, block := range blocks {
		table := blueprintTable
		if strings.HasPrefix(block[1], "# capabilities/") {
			table = capabilityTable
		}
		var r report
		source{path: "x", name: "x", data: []byte(block[1]), dir: t.TempDir(), kind: "agent"}.read(table, &r)
		if err := r.err(); err != nil {
			t.Errorf("%v in\n%s", err, block[1])
		}
	}
	if len(blocks) < 3 {
		t.Errorf("%d examples", len(blocks))
	}
}
