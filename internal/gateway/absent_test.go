package gateway_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/store"
)

// TestAbsentIsAbsent asks for things of a server that the rules hide, n, and of one
// that there is not, x, on every way in: answers, and what the journal shows of it,
// must not tell them apart, and an operator reads why.
func TestAbsentIsAbsent(t *testing.T) {
	t.Parallel()
	w := openCurtain(t)
	s := w.open(t, `{}`, asAda...)
	send := func(path, body string) *reply {
		return w.do(t, "POST", path, body, append([]string{"Content-Type", "application/json"}, asAda...)...)
	}
	rpc := func(path, method, params string) func(string) *reply {
		return func(server string) *reply {
			fill := strings.NewReplacer("@", server).Replace
			return send(fill(path), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, fill(params)))
		}
	}
	at := "/s/" + s.ID + "/mcp"
	ways := map[string]struct {
		do           func(server string) *reply
		method, name string // of the entry
	}{
		"the control API": {func(server string) *reply {
			return send("/v1/call", fmt.Sprintf(`{"tool":"%s__add","session":%q}`, server, s.ID))
		}, "tools/call", "add"},
		"another session":      {rpc("/mcp", "tools/call", `{"name":"@__add"}`), "tools/call", "add"},
		"the merged view":      {rpc(at, "tools/call", `{"name":"@__add"}`), "tools/call", "add"},
		"its own view":         {rpc(at+"/@", "tools/call", `{"name":"add"}`), "tools/call", "add"},
		"a handshake":          {rpc(at+"/@", "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}`), "initialize", ""},
		"a prompt":             {rpc(at, "prompts/get", `{"name":"@__pr"}`), "prompts/get", "pr"},
		"a resource":           {rpc(at, "resources/read", `{"uri":"tine://@/file:///a"}`), "resources/read", "file:///a"},
		"completion":           {rpc(at, "completion/complete", `{"ref":{"type":"ref/prompt","name":"@__pr"},"argument":{"name":"a","value":""}}`), "completion/complete", "pr"},
		"completion of a URI":  {rpc(at, "completion/complete", `{"ref":{"type":"ref/resource","uri":"tine://@/a"},"argument":{"name":"a","value":""}}`), "completion/complete", "a"},
		"a prompt of its view": {rpc(at+"/@", "prompts/get", `{"name":"pr"}`), "prompts/get", "pr"},
		"rollout": {func(server string) *reply {
			return rpc("/mcp/rollout", "tools/call", fmt.Sprintf(`{"name":"call_backend_tool","arguments":{"session_id":%q,"backend_name_ref":"@","tool_name":"add","tool_args":{}}}`, s.ID))(server)
		}, "tools/call", "add"},
	}
	newest := func() int64 {
		all := want[api.CallList](t, w, "GET", "/v1/calls?limit=1", "", asOps...).Calls
		if len(all) == 0 {
			return 0
		}
		seq, _ := store.CallSeq(all[0].ID)
		return seq
	}
	for what, way := range ways {
		var answers []string
		var took []int64
		for _, server := range []string{"n", "x"} {
			before := newest()
			r := way.do(server)
			answers = append(answers, fmt.Sprint(r.status, " ", regexp.MustCompile(`\b`+server+`(__|\b)`).ReplaceAllString(string(r.body), "?$1")))
			took = append(took, newest()-before)
			list := want[api.CallList](t, w, "GET", "/v1/calls?principal=ada&failed=true&limit=2", "", asOps...).Calls
			i := slices.IndexFunc(list, func(c api.Call) bool { return c.Server == server })
			if i < 0 {
				t.Errorf("%s: an operator finds nothing of %s in %+v", what, server, list)
				continue
			}
			why := map[string]string{"n": `auth.rules give "ada" no server n`, "x": `there is no server "x`}[server]
			if c := list[i]; c.Method != way.method || c.Name != way.name || c.Outcome != "invalid" || !strings.HasPrefix(c.Error, why) {
				t.Errorf("%s: an operator finds %+v, want %s %s and %s", what, c, way.method, way.name, why)
			}
		}
		if answers[0] != answers[1] || took[0] != took[1] || took[0] == 0 {
			t.Errorf("%s: of what is hidden ada is told %s, which is %d numbers of the journal; of what is not there %s, which is %d", what, answers[0], took[0], answers[1], took[1])
		}
	}
	// She sees none of them, and neither that there are some.
	for _, path := range []string{"/v1/calls?server=@&limit=1", "/v1/sessions/" + s.ID + "/calls?server=@&limit=1", "/v1/calls?limit=1&session=" + s.ID + "&server=@"} {
		for _, server := range []string{"n", "x"} {
			if r := w.ask(t, "GET", strings.ReplaceAll(path, "@", server), "", asAda...); strings.TrimSpace(string(r.body)) != `{"calls":[]}` {
				t.Errorf("%s: of %s she reads %s", path, server, r.body)
			}
		}
	}
}

// TestPagesCountWhatIsSeen checks that calls which a principal may not look at take
// no place on a page.
func TestPagesCountWhatIsSeen(t *testing.T) {
	t.Parallel()
	w := openCurtain(t)
	s := w.open(t, `{}`, asAda...)
	for i := range 6 {
		want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"m__add","session":%q}`, s.ID), asAda...)
		for range i % 3 {
			w.ask(t, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__add","session":%q}`, s.ID), asAda...)
		}
	}
	for _, path := range []string{"/v1/calls?", "/v1/sessions/" + s.ID + "/calls?"} {
		for limit := 1; limit <= 7; limit++ {
			var got []string
			var pages int
			for next := ""; ; pages++ {
				at := fmt.Sprintf("%slimit=%d", path, limit)
				if next != "" {
					at += "&before=" + next
				}
				page := want[api.CallList](t, w, "GET", at, "", asAda...)
				for _, c := range page.Calls {
					got = append(got, c.ID)
				}
				if next = page.Next; next == "" {
					break
				}
				if len(page.Calls) != limit || page.Calls[limit-1].ID != store.CallID(number(t, next)) {
					t.Fatalf("%s: %+v, and next %s", at, page.Calls, next)
				}
			}
			if len(got) != 6 || len(slices.Compact(got)) != 6 || pages != (6-1)/limit {
				t.Errorf("%s by %d: %d calls on %d pages", path, limit, len(got), pages+1)
			}
		}
	}
	// Of others she sees none, whomever she asks for.
	for principal, n := range map[string]int{"ops": 0, "nobody": 0, "ada": 6} {
		if got := want[api.CallList](t, w, "GET", "/v1/calls?principal="+principal, "", asAda...).Calls; len(got) != n {
			t.Errorf("of %s ada sees %+v", principal, got)
		}
	}
}

func number(t *testing.T, text string) (n int64) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestAbsentIsRated checks that requests for what is not there count toward a
// principal's rate, so that the journal is not filled by them.
func TestAbsentIsRated(t *testing.T) {
	t.Parallel()
	for _, server := range []string{"n", "x"} {
		w := open(t, teamYAML+"  rules: [{principals: [ada], servers: [m], rate: {calls: 0.0001, burst: 3}}, {principals: [ops]}]\nservers:\n  n: {builtin: memory, scope: session}\n  m: {builtin: memory, scope: session}\n", map[string]builtin.Kind{"memory": remembering()})
		var got []int
		for range 2 {
			for path, body := range map[string]string{"/v1/call": `{"tool":"` + server + `__add"}`, "/mcp/" + server: `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
				got = append(got, w.do(t, "POST", path, body, append([]string{"Content-Type", "application/json"}, asAda...)...).status/100*100)
			}
		}
		last := w.do(t, "POST", "/v1/call", `{"tool":"`+server+`__add"}`, append([]string{"Content-Type", "application/json"}, asAda...)...)
		if fmt.Sprint(got) != "[400 400 400 400]" || last.status != http.StatusTooManyRequests || last.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v, and then %d %s", server, got, last.status, last.body)
		}
	}
}
