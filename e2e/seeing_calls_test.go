//go:build unix

package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/e2e/teller"
)

// listed is what tine calls --json prints with some flags.
func (g *gateway) listed(t testing.TB, flags ...string) []api.Call {
	t.Helper()
	out, err := g.tine(t.Context(), append([]string{"calls", "--json"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	var list api.CallList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	return list.Calls
}

// TestCallFilters lists calls by server, outcome, session and principal.
func TestCallFilters(t *testing.T) {
	t.Parallel()
	const ada, bob = "ada-ada-ada-ada-ada", "bob-bob-bob-bob-bob"
	web := tellHTTP(t, &teller.Server{})
	g := startGateway(t, "auth: {tokens: [{name: ada, token: "+ada+"}, {name: bob, token: "+bob+"}]}\n"+
		"servers:\n  one: {url: "+web+", "+quiet+"}\n  two: {url: "+web+", "+quiet+"}\n  dead: {url: \"http://127.0.0.1:1/\", "+quiet+"}\n")
	tools := []string{"one__echo", "one__fail", "one__refuse", "two__echo", "two__fail", "dead__x"}
	for _, token := range []string{ada, bob} {
		s, err := open(t.Context(), g.url+"/mcp", bearer(token))
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			_, _ = s.call(t.Context(), tool, map[string]any{"text": "went wrong"}) // some fail
		}
	}
	all := g.listed(t)
	if len(all) != 2*len(tools) {
		t.Fatalf("%d calls: %+v", len(all), all)
	}
	outcomes := map[string]string{"echo": "ok", "fail": "tool", "refuse": "tool", "x": "infrastructure"}
	for _, c := range all {
		if c.Outcome != outcomes[c.Name] || (c.Error == "") != (c.Outcome == "ok") || c.Method != "tools/call" || c.Duration < 0 || c.At.IsZero() || c.Session == "" {
			t.Errorf("call %+v", c)
		}
	}
	count := func(list []api.Call, is func(api.Call) bool) (n int) {
		for _, c := range list {
			if is(c) {
				n++
			}
		}
		return n
	}
	session := all[0].Session // of bob, who was last
	for _, tt := range []struct {
		flags []string
		is    func(api.Call) bool
		want  int
	}{
		{[]string{"--server", "one"}, func(c api.Call) bool { return c.Server == "one" }, 6},
		{[]string{"--failed"}, func(c api.Call) bool { return c.Outcome != "ok" }, 8},
		{[]string{"--server", "two", "--failed"}, func(c api.Call) bool { return c.Server == "two" && c.Outcome != "ok" }, 2},
		{[]string{"--session", session}, func(c api.Call) bool { return c.Session == session }, 6},
		{[]string{"--principal", "ada"}, func(c api.Call) bool { return c.Principal == "ada" }, 6},
		{[]string{"--since", "1h", "--limit", "5"}, func(api.Call) bool { return true }, 5},
		{[]string{"--since", "2100-01-01T00:00:00Z"}, func(api.Call) bool { return false }, 0},
		{[]string{"--server", "none"}, func(api.Call) bool { return false }, 0},
		{[]string{"--token", bob}, func(c api.Call) bool { return c.Principal == "bob" }, 6},
		{[]string{"--token", bob, "--principal", "ada"}, func(api.Call) bool { return false }, 0},
	} {
		got := g.listed(t, tt.flags...)
		if n := count(got, tt.is); len(got) != tt.want || n != tt.want {
			t.Errorf("tine calls %q lists %d calls, %d of them right, want %d", tt.flags, len(got), n, tt.want)
		}
	}
	of := slices.IndexFunc(all, func(c api.Call) bool { return c.Principal == "ada" })
	if status, body, err := g.get(t.Context(), "/v1/calls/"+all[of].ID, bob); err != nil || status != http.StatusNotFound {
		t.Errorf("bob asks for a call of ada: %d %s %v", status, body, err)
	}
	if status, body, err := g.get(t.Context(), "/v1/calls/call_000000000000", bob); err != nil || status != http.StatusNotFound {
		t.Errorf("bob asks for a call that is not there: %d %s %v", status, body, err)
	}
}

// TestJournalModes has a server of each mode, and changes one at run time.
func TestJournalModes(t *testing.T) {
	t.Parallel()
	web := tellHTTP(t, &teller.Server{})
	g := startGateway(t, "journal: {mode: meta}\nservers:\n"+
		"  full: {url: "+web+", journal: full}\n  meta: {url: "+web+"}\n  off: {url: "+web+", journal: off}\n")
	s := mustOpen(t, g.url+"/mcp")
	call := func(word string) {
		for _, server := range []string{"full", "meta", "off"} {
			for _, tool := range []string{"echo", "fail", "refuse"} {
				_, _ = s.call(t.Context(), server+"__"+tool, map[string]any{"text": word, "word": word}) // some fail
			}
		}
	}
	call("first-word")
	byServer := map[string][]api.Call{}
	for _, c := range g.listed(t) {
		byServer[c.Server] = append(byServer[c.Server], c)
	}
	if len(byServer["full"]) != 3 || len(byServer["meta"]) != 3 || len(byServer["off"]) != 0 {
		t.Errorf("calls of full %d, of meta %d, of off %d", len(byServer["full"]), len(byServer["meta"]), len(byServer["off"]))
	}
	for server, calls := range byServer {
		for _, c := range calls {
			one, err := g.control(t, "").JournalCall(t.Context(), c.ID)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			if has := strings.Contains(string(raw), "first-word"); has != (server == "full") || one.Journal != server {
				t.Errorf("%s: %s", server, raw)
			}
			if (one.Outcome == "ok") != (c.Name == "echo") {
				t.Errorf("%s: %s", server, raw)
			}
		}
	}
	// Not only is it not shown: it is not there.
	for _, file := range g.segments(t) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, "first-word") && !strings.Contains(line, `"full"`) {
				t.Errorf("a line holds what is not to be kept: %s", line)
			}
		}
	}
	if _, err := g.tine(t.Context(), "servers", "set", "meta", "journal=full"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.tine(t.Context(), "servers", "set", "full", "journal=off"); err != nil {
		t.Fatal(err)
	}
	call("second-word")
	n := map[string]int{}
	for _, c := range g.listed(t) {
		if strings.Contains(string(c.Arguments), "second-word") {
			n[c.Server]++
		}
	}
	if n["meta"] != 3 || n["full"] != 0 || n["off"] != 0 {
		t.Errorf("after the modes were changed there are %v", n)
	}
}

// TestReplay makes calls again and looks at the bytes that the server gets.
func TestReplay(t *testing.T) {
	t.Parallel()
	const ada, bob, vic, ops = "ada-ada-ada-ada-ada", "bob-bob-bob-bob-bob", "vic-vic-vic-vic-vic", "ops-ops-ops-ops-ops"
	var mu sync.Mutex
	got := map[string][]string{}
	server := &teller.Server{Called: func(name string, r *teller.Request) {
		mu.Lock()
		defer mu.Unlock()
		got[name] = append(got[name], string(r.Params.Arguments))
	}}
	g := startGateway(t, "auth:\n  tokens:\n    - {name: ada, token: "+ada+"}\n    - {name: bob, token: "+bob+"}\n"+
		"    - {name: vic, role: viewer, token: "+vic+"}\n    - {name: ops, role: operator, token: "+ops+"}\n"+
		"servers:\n  web: {url: "+tellHTTP(t, server)+", tools: {rename: {arguments: tell_me}}}\n  meta: {url: "+tellHTTP(t, server)+", journal: meta}\n")
	s, err := open(t.Context(), g.url+"/mcp", bearer(ada))
	if err != nil {
		t.Fatal(err)
	}
	for i, args := range []string{
		`{"n":123456789012345678901234567890,"e":1e400,"f":1.10,"z":-0,"s":"grüße 🎉 \u00fc \/ \ud83c\udf89 \u0000","":{"a":[ 1 ,2]},"b":null}`,
		`{"password":"hunter2hunter2","api_key":"sk-proj-12345678901234567890"}`,
		`{}`,
		`{"big":"` + strings.Repeat("größe ", 20000) + `"}`,
		`{"</script>":"<&>\u2028"}`,
	} {
		body := `{"jsonrpc":"2.0","id":` + strconv.Itoa(i+1) + `,"method":"tools/call","params":{"name":"web__tell_me","arguments":` + args + `}}`
		r, err := post(t.Context(), s.url, s.header, body)
		if err != nil || r.status != http.StatusOK {
			t.Fatal(r.status, string(r.body), err)
		}
		call := g.listed(t, "--limit", "1")[0]
		cmd := exec.CommandContext(t.Context(), tineBinary, "replay", call.ID, "--yes", "--json", "--state", g.state())
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("tine replay: %v: %s", err, said.String())
		}
		mu.Lock()
		arrived := got["arguments"]
		mu.Unlock()
		if len(arrived) != 2*(i+1) || arrived[2*i] != args || arrived[2*i+1] != args {
			t.Fatalf("sent %.200s, the server got %d calls, the last with %.200s", args, len(arrived), arrived[len(arrived)-1])
		}
		var result toolResult
		if err := json.Unmarshal(out, &result); err != nil || result.text() != args {
			t.Errorf("tine replay printed %.200s, %v", out, err)
		}
		// It has an id of its own, which is told.
		newest := g.listed(t, "--limit", "1")[0]
		if newest.ID == call.ID || !strings.Contains(said.String(), newest.ID) {
			t.Errorf("the call that was made again is %s, and tine replay says %q", newest.ID, said.String())
		}
	}
	first := g.listed(t, "--principal", "ada")[0]
	before := len(got["arguments"])
	for name, token := range map[string]string{"another user": bob, "a viewer": vic} {
		var ae *api.Error
		if _, err := g.control(t, token).Replay(t.Context(), first.ID); !errors.As(err, &ae) || ae.Status < 400 || ae.Status >= 500 {
			t.Errorf("%s replays a call of ada: %v", name, err)
		}
	}
	if _, err := g.control(t, ada).Replay(t.Context(), first.ID); err != nil {
		t.Errorf("ada replays her own call: %v", err)
	}
	if _, err := g.control(t, ops).Replay(t.Context(), first.ID); err != nil {
		t.Errorf("an operator replays a call of ada: %v", err)
	}
	if n := len(got["arguments"]) - before; n != 2 {
		t.Errorf("the server was called %d times, want 2", n)
	}
	// What was not kept can't be made again, and no prompt either.
	s.mustCall(t, "meta__arguments", map[string]any{})
	if _, err := s.request(t.Context(), "prompts/get", map[string]any{"name": "web__p"}); err != nil {
		t.Fatal(err)
	}
	before = len(got["arguments"])
	for _, c := range g.listed(t, "--limit", "2") {
		var ae *api.Error
		_, err := g.control(t, "").Replay(t.Context(), c.ID)
		if !errors.As(err, &ae) || ae.Kind != api.KindRefused || !strings.Contains(ae.Message, c.ID) {
			t.Errorf("replay of a %s of %s: %v", c.Method, c.Server, err)
		}
	}
	if n := len(got["arguments"]) - before; n != 0 {
		t.Errorf("the server was called %d times by what is refused", n)
	}
	if _, err := g.tine(t.Context(), "replay", "call_000000000000", "--yes"); err == nil {
		t.Error("a call that is not there was made again")
	}
	if _, err := g.tine(t.Context(), "replay", first.ID); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("without a terminal and without --yes: %v", err)
	}
}

// TestReplayOfWhatIsHidden checks that a principal which may no longer call a
// tool can't by replay.
func TestReplayOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	const ada = "ada-ada-ada-ada-ada"
	web := tellHTTP(t, &teller.Server{})
	config := "auth:\n  tokens: [{name: ada, token: " + ada + "}]\n  rules:\n    - {principals: [ada], tools: [\"web__*\"]}\nservers:\n  web: {url: " + web + "}\n"
	g := startGateway(t, config)
	s, err := open(t.Context(), g.url+"/mcp", bearer(ada))
	if err != nil {
		t.Fatal(err)
	}
	s.mustCall(t, "web__echo", map[string]any{"text": "x"})
	id := g.listed(t, "--limit", "1")[0].ID
	if _, err := g.control(t, ada).Replay(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	g.writeConfig(t, strings.Replace(config, `"web__*"`, `"web__tell"`, 1))
	if err := eventually(func() error {
		if _, err := g.control(t, ada).Replay(t.Context(), id); err != nil {
			return nil
		}
		return errors.New("the replay still works")
	}); err != nil {
		t.Error(err)
	}
}

// TestCallsOfOne shows one call whole, as text and as JSON.
func TestCallsOfOne(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n  web: {url: "+tellHTTP(t, &teller.Server{})+"}\n")
	s := mustOpen(t, g.url+"/mcp")
	long := strings.Repeat("many words ", 3000)
	s.mustCall(t, "web__echo", map[string]any{"text": long})
	c := g.journal(t, client.CallQuery{})[0]
	one, err := g.control(t, "").JournalCall(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(one.Arguments), long) || !strings.Contains(string(one.Result), long) {
		t.Error("arguments or result are not whole")
	}
	out, err := g.tine(t.Context(), "calls", c.ID)
	if err != nil || strings.Count(out, long) != 2 || !regexp.MustCompile(`(?m)^outcome +ok$`).MatchString(out) {
		t.Errorf("tine calls %s: %v %s", c.ID, err, tail(out, 400))
	}
	if _, err := os.Stat(filepath.Join(g.state(), "journal")); err != nil {
		t.Error(err)
	}
}
