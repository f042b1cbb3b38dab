package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestRankTools(t *testing.T) {
	t.Parallel()
	tool := func(name, description string, params ...string) []byte {
		props := make([]string, len(params))
		for i, p := range params {
			props[i] = fmt.Sprintf(`%q:{"type":"string"}`, p)
		}
		return fmt.Appendf(nil, `{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s}}}`, name, description, strings.Join(props, ","))
	}
	tools := [][]byte{
		tool("files__readFile", "[Files] Read the contents of a file", "path"),
		tool("files__write_file", "[Files] Write text into a file and read it back", "path", "content"),
		tool("github__create_issue", "[GitHub] Open a new issue in a repository", "title", "body"),
		tool("github__list_issues", "[GitHub] List the issues of a repository", "state"),
		tool("github__issue", "[GitHub] Show one", "number"),
		tool("mail__send", "[Mail] Send a message to someone", "recipient", "subject"),
		tool("wetter__heute", "[Wetter] Größe und Straße", "ort"),
		tool("cn__q", "查询天气预报"),
		tool("web__cookies", "[Web] Show all"),
		tool("web__ties", "[Web] Show both"),
	}
	for query, want := range map[string][]string{
		"read file":            {"files__readFile", "files__write_file"},
		"create issue":         {"github__create_issue", "github__issue", "github__list_issues"},
		"create issues":        {"github__create_issue", "github__issue", "github__list_issues"},
		"ISSUE":                {"github__issue", "github__list_issues", "github__create_issue"},
		"github__list_issues":  {"github__list_issues", "github__issue", "github__create_issue"},
		"repo":                 {"github__list_issues", "github__create_issue"},
		"recipient":            {"mail__send"},
		"straße":               {"wetter__heute"},
		"天气":                   {"cn__q"},
		"cookie":               {"web__cookies"},
		"tie":                  {"web__ties"},
		"repositories":         {"github__list_issues", "github__create_issue"},
		"something altogether": nil,
		"xyzzy":                nil,
	} {
		var got []string
		for _, i := range rankTools(query, tools) {
			got = append(got, found(tools[i]).Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
	if got := rankTools(" ?! ", tools); len(got) != len(tools) || !slices.IsSorted(got) {
		t.Errorf("without a word: %v", got)
	}
	if got := rankTools("x", nil); len(got) != 0 {
		t.Errorf("of no tools: %v", got)
	}
	// What servers send is not always what it should be.
	for _, odd := range []string{`{}`, `{"name":7}`, `{"name":"x","inputSchema":{"properties":[]}}`, `{"name":"x","inputSchema":{"properties":{"x":1}}}`, `[]`} {
		rankTools("x", [][]byte{[]byte(odd)})
	}
}
