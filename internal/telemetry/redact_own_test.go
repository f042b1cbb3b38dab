package telemetry

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestOwnMessagesStayWhole holds every message that the reading of a config may write
// about a place with a secret against the redaction: the reader needs each word of it.
func TestOwnMessagesStayWhole(t *testing.T) {
	said := configMessages(t)
	if len(said) < 100 {
		t.Fatalf("only %d messages were found in the source", len(said))
	}
	r := NewRedactor()
	for _, m := range said {
		for _, key := range []string{"auth", "auth.private_key", "auth.client_secret", "headers.Authorization", "env.DB_PASSWORD", "settings.api_key", "auth.tokens[0].token"} {
			if key == "env.DB_PASSWORD" && !m.ofValue {
				continue // it has no keys below it
			}
			for _, before := range []string{"", "tine.yaml:5:108: ", `server "ec": `} {
				msg := before + "servers.my-ec." + key + ": " + m.text
				if got := r.Text(msg); got != msg {
					t.Errorf("\n got %s\nwant %s", got, msg)
				}
			}
		}
	}
}

type ownMessage struct {
	text    string
	ofValue bool // rather than of keys below
}

// configMessages are the formats of the messages about a place, filled in. One that
// begins with what the user wrote is left out: behind the name of a secret that is
// masked.
func configMessages(t *testing.T) []ownMessage {
	t.Helper()
	var files []string
	for _, pattern := range []string{"../config/*.go", "../driver/*/*.go"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	seen := map[string]bool{}
	var list []ownMessage
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			at := map[string]int{"Wrong": 2, "fail": 1, "Fail": 1}
			if !ok || at[f.Sel.Name] == 0 || len(call.Args) <= at[f.Sel.Name] {
				return true
			}
			lit, ok := call.Args[at[f.Sel.Name]].(*ast.BasicLit)
			if !ok {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			if f.Sel.Name != "Wrong" {
				_, said, ok := strings.Cut(text, ": ")
				if !ok || !strings.HasPrefix(text, "%s") {
					return true
				}
				text = said
			}
			if strings.HasPrefix(strings.TrimLeft(text, "-"), "%") || seen[text] {
				return true
			}
			seen[text] = true
			text = strings.NewReplacer("%s", "x", "%q", `"x"`, "%d", "5", "%v", "5", "%%", "%").Replace(text)
			list = append(list, ownMessage{text, f.Sel.Name == "Wrong"})
			return true
		})
	}
	return append(list, ownMessage{"is neither a private key in PEM nor a JWK; write it like ${file:tine-key.pem}", true},
		ownMessage{`want a string, got a map; write private_key: "${file:tine-key.pem}"`, true})
}
