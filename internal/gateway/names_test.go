package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

type listedTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description *string         `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
}

func (t listedTool) text() string {
	if t.Description == nil {
		return ""
	}
	return *t.Description
}

// tools lists a view as a client of each era sees it, and checks that both see
// the same.
func tools(t *testing.T, w *world, path string, who ...string) []listedTool {
	t.Helper()
	var old, young struct{ Tools []listedTool }
	decode(t, w.dial(t, path, `{}`, who...).get("tools/list", `{}`), &old)
	decode(t, w.modern(t, path, `{}`, who...).get("tools/list", "", `{}`), &young)
	if a, b := names(old.Tools), names(young.Tools); !slices.Equal(a, b) {
		t.Fatalf("%s: legacy clients see %v, modern ones %v", path, a, b)
	}
	return old.Tools
}

func names(list []listedTool) []string {
	var all []string
	for _, l := range list {
		all = append(all, l.Name)
	}
	return all
}

// toolList renders a tools/list result of plain tools.
func toolList(names ...string) string {
	var all []string
	for _, n := range names {
		all = append(all, fmt.Sprintf(`{"name":%q,"description":"does %s","inputSchema":{"type":"object"}}`, n, n))
	}
	return `{"tools":[` + strings.Join(all, ",") + `],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
}

const done = `{"content":[{"type":"text","text":"done"}],"resultType":"complete"}`

// echoServer answers every call with done.
func echoServer(t *testing.T, isModern bool, tools ...string) *scripted {
	return script(t, isModern, map[string]string{"tools/list": toolList(tools...), "tools/call": done,
		"resources/list": `{"resources":[]}`, "resources/templates/list": `{"resourceTemplates":[]}`, "prompts/list": `{"prompts":[]}`})
}

// calls calls a tool in both eras and returns the two answers.
func calls(t *testing.T, w *world, path, tool string) [2]message {
	t.Helper()
	params := fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool)
	return [2]message{
		w.dial(t, path, `{}`).ask("tools/call", params),
		w.modern(t, path, `{}`).ask("tools/call", tool, params),
	}
}

func TestMergedNames(t *testing.T) {
	t.Parallel()
	a := echoServer(t, false, "one", "two__three", "__odd", "with space")
	b := echoServer(t, true, "one", "a__one")
	w := open(t, servers("a", `{title: "The A", url: "`+a.URL+`"}`, "b", b.URL))
	list := tools(t, w, "/mcp")
	want := []string{"a__one", "a__two__three", "a____odd", "a__with space", "b__one", "b__a__one"}
	if got := names(list); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if got := list[0].text(); got != "[The A] does one" {
		t.Errorf("described as %q", got)
	}
	if got := list[4].text(); got != "[b] does one" {
		t.Errorf("described as %q", got)
	}
	// Each name goes to its own server, as the server knows it.
	for _, tt := range []struct {
		merged string
		up     *scripted
		name   string
	}{
		{"a__one", a, "one"}, {"a__two__three", a, "two__three"}, {"a____odd", a, "__odd"}, {"a__with space", a, "with space"},
		{"b__one", b, "one"}, {"b__a__one", b, "a__one"},
	} {
		for i, m := range calls(t, w, "/mcp", tt.merged) {
			if m.Result == nil {
				t.Errorf("%s: %s", tt.merged, m.raw)
				continue
			}
			all := tt.up.of("tools/call")
			var p struct{ Name string }
			decode(t, all[len(all)-2+min(i+1, 1)].Params, &p)
			if p.Name != tt.name {
				t.Errorf("%s arrived as %q, want %q", tt.merged, p.Name, tt.name)
			}
		}
	}
	if n := len(a.of("tools/call")); n != 8 {
		t.Errorf("server a got %d calls, want 8", n)
	}
}

// TestMergedEntriesKeepTheRest checks that a tool in the merged view differs
// from the server's own in its name and description and nothing else.
func TestMergedEntriesKeepTheRest(t *testing.T) {
	t.Parallel()
	entry := `{"x":12345678901234567890,"description":"\u0041 <b> \"q\"","name":"ec\u0068o","icons":[{"src":"data:,","k":1.0}],"annotations":{"title":"T","odd":[]},"inputSchema":{"type":"object","properties":{"name":{"description":"inner"},"b":{"const":1.0}}},"outputSchema":{"z":1,"a":2},"_meta":{"name":"k"}, "title":"T"}`
	bare := `{"name":"bare","inputSchema":{}}`
	for _, isModern := range []bool{false, true} {
		up := script(t, isModern, map[string]string{"tools/list": `{"tools":[` + entry + `,` + bare + `],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`})
		w := open(t, servers("a", up.URL))
		var got struct{ Tools []json.RawMessage }
		decode(t, w.dial(t, "/mcp", `{}`).get("tools/list", `{}`), &got)
		want := strings.Replace(entry, `"name":"ec\u0068o"`, `"name":"a__echo"`, 1)
		want = strings.Replace(want, `"description":"\u0041 <b> \"q\""`, `"description":"[a] A <b> \"q\""`, 1)
		if len(got.Tools) != 2 || !sameMembers(t, got.Tools[0], want) {
			t.Fatalf("got\n%s\nwant\n%s", got.Tools, want)
		}
		if want := strings.Replace(bare, "bare", "a__bare", 1); string(got.Tools[1]) != want {
			t.Errorf("got %s, want %s", got.Tools[1], want)
		}
	}
}

// sameMembers compares two objects member by member: order and bytes, except
// for the escapes in the two strings that are replaced.
func sameMembers(t *testing.T, got []byte, want string) bool {
	t.Helper()
	strip := func(s string) string {
		for _, d := range []string{`"description":"[a] A <b> \"q\""`, `"description":"[a] \u0041 <b> \"q\""`} {
			s = strings.Replace(s, d, `"description":D`, 1)
		}
		return s
	}
	return strip(string(got)) == strip(want)
}

func TestShapedTools(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "read_file", "read_dir", "write_file", "drop", "other")
	w := open(t, servers("fs", `{url: "`+up.URL+`", tools: {allow: ["read_*", "write_file", drop], deny: [drop, "*_dir"], rename: {read_file: cat, drop: keep}, describe: {write_file: "Writes <it>."}}}`))
	for path, prefix := range map[string]string{"/mcp": "fs__", "/mcp/fs": ""} {
		list := tools(t, w, path)
		if got, want := names(list), []string{prefix + "cat", prefix + "write_file"}; !slices.Equal(got, want) {
			t.Fatalf("%s: got %q, want %q", path, got, want)
		}
		want := "Writes <it>."
		if prefix != "" {
			want = "[fs] " + want
		}
		if got := list[1].text(); got != want {
			t.Errorf("%s: described as %q, want %q", path, got, want)
		}
		before := len(up.of("tools/call"))
		for _, m := range calls(t, w, path, prefix+"cat") {
			if m.Result == nil {
				t.Errorf("%s: cat: %s", path, m.raw)
			}
		}
		for _, got := range up.of("tools/call")[before:] {
			var p struct{ Name string }
			decode(t, got.Params, &p)
			if p.Name != "read_file" {
				t.Errorf("%s: cat arrived as %q", path, p.Name)
			}
		}
	}
}

// TestRefusedLikeUnknown checks that a caller can't tell a tool that is hidden
// from one that does not exist, and that the server hears of no hidden one.
func TestRefusedLikeUnknown(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "read_file", "secret", "other")
	w := open(t, servers("fs", `{url: "`+up.URL+`", tools: {allow: ["read_*", secret], deny: [secret], rename: {read_file: cat, secret: shown}}}`))
	for path, prefix := range map[string]string{"/mcp": "fs__", "/mcp/fs": ""} {
		unknown := calls(t, w, path, prefix+"nosuchtool")
		for _, tool := range []string{"secret", "shown", "other", "read_file"} {
			for i, m := range calls(t, w, path, prefix+tool) {
				got, want := string(m.Error), strings.ReplaceAll(string(unknown[i].Error), "nosuchtool", tool)
				if got == "" || got != want {
					t.Errorf("%s %s: got %s, an unknown tool gives %s", path, tool, m.raw, want)
				}
			}
		}
	}
	if n := len(up.of("tools/call")); n != 0 {
		t.Errorf("the server got %d calls, want none", n)
	}
}

func TestUnknownServers(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	for _, tool := range []string{"nobody__one", "one", "a_one", "__one", "A__one"} {
		for _, m := range calls(t, w, "/mcp", tool) {
			if e := m.failure(t); e.Code != -32602 {
				t.Errorf("%q: %s, want -32602", tool, m.raw)
			}
		}
	}
	if r := w.do(t, "POST", "/mcp/nobody", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type", "application/json"); r.status != 404 {
		t.Errorf("an unknown view answers %d %s, want 404", r.status, r.body)
	}
}

func TestSeparator(t *testing.T) {
	t.Parallel()
	up := echoServer(t, false, "one.two", "__x")
	w := open(t, "separator: \".\"\n"+servers("a_b", up.URL))
	if got, want := names(tools(t, w, "/mcp")), []string{"a_b.one.two", "a_b.__x"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for _, name := range []string{"a_b.one.two", "a_b.__x"} {
		for _, m := range calls(t, w, "/mcp", name) {
			if m.Result == nil {
				t.Errorf("%s: %s", name, m.raw)
			}
		}
	}
}

func TestDefaultView(t *testing.T) {
	t.Parallel()
	a, b := echoServer(t, false, "one"), echoServer(t, true, "two")
	w := open(t, "default_view: b\n"+servers("a", a.URL, "b", b.URL))
	for path, want := range map[string]string{"/mcp": "two", "/mcp/a": "one", "/mcp/b": "two"} {
		list := tools(t, w, path)
		if got := names(list); !slices.Equal(got, []string{want}) {
			t.Errorf("%s shows %q, want %q alone", path, got, want)
		}
		if got := list[0].text(); got != "does "+want {
			t.Errorf("%s: described as %q", path, got)
		}
		for _, m := range calls(t, w, path, want) {
			if m.Result == nil {
				t.Errorf("%s: %s", path, m.raw)
			}
		}
	}
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70)
	tail1, tail2 := long+"1", long+"2"
	fit := strings.Repeat("y", 64-len("server__"))
	up := echoServer(t, true, tail1, tail2, fit, strings.Repeat("é", 64))
	yaml := "long_names: shorten\n" + servers("server", up.URL)
	w := open(t, yaml)
	got := names(tools(t, w, "/mcp"))
	if len(got) != 4 || got[0] == got[1] {
		t.Fatalf("got %q", got)
	}
	for _, n := range got {
		if len([]rune(n)) > 64 || !strings.HasPrefix(n, "server__") {
			t.Errorf("%q has %d characters", n, len([]rune(n)))
		}
	}
	if got[2] != "server__"+fit {
		t.Errorf("%q was short enough", got[2])
	}
	for i, name := range got[:2] {
		for _, m := range calls(t, w, "/mcp", name) {
			if m.Result == nil {
				t.Fatalf("%s: %s", name, m.raw)
			}
		}
		var p struct{ Name string }
		decode(t, up.last(t, "tools/call").Params, &p)
		if want := []string{tail1, tail2}[i]; p.Name != want {
			t.Errorf("%s arrived as %s, want %s", name, p.Name, want)
		}
	}
	// Another gateway, and a call before any list: the names are the same and
	// can be resolved.
	other := open(t, yaml)
	for _, m := range calls(t, other, "/mcp", got[1]) {
		if m.Result == nil {
			t.Errorf("without a list: %s", m.raw)
		}
	}
	if again := names(tools(t, other, "/mcp")); !slices.Equal(again, got) {
		t.Errorf("another gateway says %q, before it was %q", again, got)
	}
	if list := names(tools(t, open(t, servers("server", up.URL)), "/mcp")); list[0] != "server__"+tail1 {
		t.Errorf("shortened without being asked: %q", list[0])
	}
}

// TestStableOrder checks that lists come in the order of the config and the
// servers, each time.
func TestStableOrder(t *testing.T) {
	t.Parallel()
	var pairs, want []string
	for _, id := range []string{"z", "m", "a", "q", "b"} {
		up := echoServer(t, len(pairs)%4 == 0, "t9", "t1", "t5")
		pairs = append(pairs, id, up.URL)
		want = append(want, id+"__t9", id+"__t1", id+"__t5")
	}
	w := open(t, servers(pairs...))
	for range 20 {
		if got := names(tools(t, w, "/mcp")); !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
}
