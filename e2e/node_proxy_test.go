//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// What a server of others may send: fields that no SDK knows, at every depth, and
// numbers with more digits than a float64 has.
const (
	oddTool = `{"name":"odd","x-listed":{"n":12345678901234567890},"description":"Größe","inputSchema":{"type":"object",` +
		`"properties":{"n":{"type":"integer","maximum":9007199254740993,"x-float":1.10}},"x-order":[3,1,2]},"annotations":{"x-hint":1e400}}`
	oddAnswer = `{"x-first":[9007199254740993,1.10],"content":[{"type":"text","text":"größe \u2028","x-mark":{"n":12345678901234567890}},` +
		`{"type":"x-unknown","value":1}],"structuredContent":{"z":1,"a":9007199254740995},"isError":false,"x-last":null}`
	oddArgs  = `{"n":9007199254740993,"f":1.10,"ä":[12345678901234567890,{"z":1,"a":2}]}`
	oddError = `{"n":9007199254740993,"f":1.10}`
)

// oddServer speaks the handshake era by hand. It keeps the arguments that it gets.
type oddServer struct {
	mu   sync.Mutex
	args []string
}

func (s *oddServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	body, err := io.ReadAll(r.Body)
	if r.Method != http.MethodPost || err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	answer := `"error":{"code":-32601,"message":"method not found"}`
	switch m.Method {
	case "initialize":
		answer = `"result":{"protocolVersion":"` + legacyVersion + `","capabilities":{"tools":{}},"serverInfo":{"name":"odd","version":"1"}}`
	case "tools/list":
		answer = `"result":{"tools":[` + oddTool + `,{"name":"refuse","inputSchema":{"type":"object"}}]}`
	case "tools/call":
		var p struct {
			Name      string
			Arguments json.RawMessage
		}
		if err := json.Unmarshal(m.Params, &p); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.mu.Lock()
		s.args = append(s.args, string(p.Arguments))
		s.mu.Unlock()
		if answer = `"result":` + oddAnswer; p.Name == "refuse" {
			answer = `"error":{"code":-32042,"message":"not today","data":` + oddError + `}`
		}
	}
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,`+answer+`}`)
}

// TestNodeProxyKeepsBytes compares what a server sends with what comes out of the
// proxy of ten lines, and what the client sends with what the server gets.
func TestNodeProxyKeepsBytes(t *testing.T) {
	t.Parallel()
	odd := new(oddServer)
	up := httptest.NewServer(odd)
	t.Cleanup(up.Close)
	once := serveNode(t, "proxy", up.URL+"/mcp")
	twice := serveNode(t, "proxy", once+"/mcp")
	for name, ask := range map[string]func(method, tool, params string) message{
		"legacy": byHand(t, once+"/mcp", legacyVersion), "modern": byHand(t, once+"/mcp", modernVersion),
		"twice": byHand(t, twice+"/mcp", modernVersion),
	} {
		t.Run(name, func(t *testing.T) {
			var list struct{ Tools []json.RawMessage }
			if m := ask("tools/list", "", `{}`); json.Unmarshal(m.Result, &list) != nil || len(list.Tools) != 2 {
				t.Fatalf("the list is %s", m.Result)
			}
			if got := string(list.Tools[0]); got != oddTool {
				t.Errorf("listed\n%s, want\n%s", got, oddTool)
			}
			m := ask("tools/call", "odd", `{"name":"odd","arguments":`+oddArgs+`}`)
			if m.Error != nil {
				t.Fatal(m.Error)
			}
			want := fieldsOf(t, json.RawMessage(oddAnswer))
			for field, value := range fieldsOf(t, m.Result) {
				if field != "_meta" && field != "resultType" && string(value) != string(want[field]) {
					t.Errorf("%s is %s, want %s", field, value, want[field])
				}
				delete(want, field)
			}
			if len(want) > 0 {
				t.Errorf("the answer lacks %s", want)
			}
			if name == "legacy" && string(m.Result) != oddAnswer {
				t.Errorf("answered\n%s, want\n%s", m.Result, oddAnswer)
			}
			odd.mu.Lock()
			defer odd.mu.Unlock()
			if got := slices.Compact(slices.Clone(odd.args)); len(got) != 1 || got[0] != oddArgs {
				t.Errorf("the server got %s, want %s", got, oddArgs)
			}
		})
		t.Run(name+"/error", func(t *testing.T) {
			m := ask("tools/call", "refuse", `{"name":"refuse","arguments":`+oddArgs+`}`)
			if m.Error == nil || m.Error.Code != -32042 || m.Error.Message != "not today" || string(m.Error.Data) != oddError {
				t.Errorf("answered %s, %+v", m.Result, m.Error)
			}
		})
	}
}

// TestNodeProxyOfAProgram puts the proxy before a program, and compares bytes with
// those that the program serves itself.
func TestNodeProxyOfAProgram(t *testing.T) {
	t.Parallel()
	bare := serveNode(t, "toolbox")
	through := serveNode(t, "proxy", nodeProgram(t, "toolbox"))
	for _, version := range []string{legacyVersion, modernVersion} {
		one, other := byHand(t, bare+"/mcp", version), byHand(t, through+"/mcp", version)
		var lists [2]struct{ Tools []json.RawMessage }
		for i, ask := range []func(method, tool, params string) message{one, other} {
			if err := json.Unmarshal(ask("tools/list", "", `{}`).Result, &lists[i]); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.EqualFunc(lists[0].Tools, lists[1].Tools, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) || len(lists[0].Tools) == 0 {
			t.Errorf("%s: listed\n%s, want\n%s", version, lists[1].Tools, lists[0].Tools)
		}
		for _, w := range append(nodeWants, nodeWants[0]) {
			params := `{"name":"` + w.tool + `","arguments":` + w.args + `}`
			want, got := one("tools/call", w.tool, params), other("tools/call", w.tool, params)
			wants, gots := fieldsOf(t, want.Result), fieldsOf(t, got.Result)
			for _, fields := range []map[string]json.RawMessage{wants, gots} {
				delete(fields, "_meta")      // names the server
				delete(fields, "resultType") // of the era in which the proxy asked
			}
			if a, b := mustJSON(t, wants), mustJSON(t, gots); a != b || mustJSON(t, got.Error) != mustJSON(t, want.Error) {
				t.Errorf("%s: %s answers %s %+v, want %s %+v", version, w.tool, b, got.Error, a, want.Error)
			}
		}
	}
}

func fieldsOf(t *testing.T, raw json.RawMessage) map[string]json.RawMessage {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil && raw != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return fields
}

// byHand asks a server in one of the eras, with parameters as they are written.
func byHand(t *testing.T, url, version string) func(method, tool, params string) message {
	t.Helper()
	var s *session
	if version == legacyVersion {
		s = mustOpen(t, url)
	}
	return func(method, tool, params string) message {
		t.Helper()
		header := modernHeader(method, tool)
		if s != nil {
			header = s.header
		} else {
			meta := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + version + `","io.modelcontextprotocol/clientInfo":{"name":"e2e","version":"1"},` +
				`"io.modelcontextprotocol/clientCapabilities":{}}`
			if params != "{}" {
				meta += ","
			}
			params = meta + strings.TrimPrefix(params, "{")
		}
		r, err := post(t.Context(), url, header, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`)
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.answer()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}
