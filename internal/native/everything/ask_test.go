package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestElicitation(t *testing.T) {
	for _, era := range nativetest.Eras() {
		for _, answer := range []mcp.ElicitResult{{Action: "accept", Content: map[string]any{"name": "Bo", "check": true, "integer": 7.0, "number": 1.5}}, {Action: "decline"}, {Action: "cancel"}} {
			t.Run(era+"/"+answer.Action, func(t *testing.T) {
				c := newCaller(answer)
				cs := connect(t, build(t, nil), era, c)
				res := nativetest.Call(t, cs, "trigger-elicitation-request", nil)
				text := nativetest.Text(res)
				if res.IsError || !strings.Contains(text, `"action": "`+answer.Action+`"`) {
					t.Errorf("form: %v %q", res.IsError, text)
				}
				if answer.Action == "accept" && !strings.Contains(text, "- Name: Bo\n- Agreed to terms: true\n- Favorite Integer: 7\n- Favorite Number: 1.5") {
					t.Errorf("form: %q", text)
				}
				res = nativetest.Call(t, cs, "trigger-url-elicitation", map[string]any{"url": "https://example.com/a"})
				text = nativetest.Text(res)
				if len(c.elicited) != 2 || c.elicited[1].Mode != "url" || c.elicited[1].URL != "https://example.com/a" || c.elicited[1].ElicitationID == "" {
					t.Fatalf("elicited %+v", c.elicited)
				}
				// The id that was asked with is the one that is reported, also when
				// the answer came with a second call.
				if res.IsError || !strings.Contains(text, c.elicited[1].ElicitationID) {
					t.Errorf("url: %v %q, want id %s", res.IsError, text, c.elicited[1].ElicitationID)
				}
			})
		}
	}
}

func TestURLElicitationByError(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			// A client without a handler gets to see the error itself.
			opts := newCaller(mcp.ElicitResult{}).options()
			opts.ElicitationHandler = nil
			cs := nativetest.Connect(t, build(t, nil).Server, era, opts)
			call := func(url string) (*mcp.CallToolResult, error) {
				return cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "trigger-url-elicitation", Arguments: map[string]any{"url": url, "errorPath": true}})
			}
			required := func(err error) bool {
				var we *jsonrpc.Error
				return errors.As(err, &we) && we.Code == mcp.CodeURLElicitationRequired && strings.Contains(string(we.Data), `"elicitations"`)
			}
			for range 2 {
				if _, err := call("https://example.com/a"); !required(err) {
					t.Fatalf("first call: err = %v", err)
				}
				if _, err := call("https://example.com/b"); !required(err) {
					t.Fatalf("another call: err = %v", err)
				}
				if _, err := call("https://example.com/a"); required(err) {
					t.Fatalf("retry: err = %v", err)
				}
				if _, err := call("https://example.com/b"); required(err) {
					t.Fatalf("another retry: err = %v", err)
				}
			}
			if res := nativetest.Call(t, cs, "trigger-url-elicitation", map[string]any{"url": "no url"}); !res.IsError {
				t.Error("a bad URL is accepted")
			}
		})
	}
}

func TestFailedQuestionsAreToolErrors(t *testing.T) {
	opts := newCaller(mcp.ElicitResult{}).options()
	opts.ElicitationHandler = func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		return nil, errors.New("nobody is at home")
	}
	cs := nativetest.Connect(t, build(t, nil).Server, nativetest.Legacy, opts)
	res := nativetest.Call(t, cs, "trigger-elicitation-request", nil)
	if !res.IsError || !strings.Contains(nativetest.Text(res), "nobody is at home") {
		t.Errorf("%v %q", res.IsError, nativetest.Text(res))
	}
}

func TestSampling(t *testing.T) {
	for _, era := range nativetest.Eras() {
		c := newCaller(mcp.ElicitResult{})
		cs := connect(t, build(t, nil), era, c)
		got := nativetest.Text(nativetest.Call(t, cs, "trigger-sampling-request", map[string]any{"prompt": "p", "maxTokens": 5}))
		want := "LLM sampling result: \n{\n  \"model\": \"m<1>\",\n  \"stopReason\": \"endTurn\",\n  \"role\": \"assistant\",\n  \"content\": {\n    \"type\": \"text\",\n    \"text\": \"hi & bye\"\n  }\n}"
		if got != want {
			t.Errorf("%s: got %q, want %q", era, got, want)
		}
		if len(c.sampled) != 1 || c.sampled[0].MaxTokens != 5 {
			t.Errorf("%s: sampled %+v", era, c.sampled)
		}
	}
}

func TestRoots(t *testing.T) {
	s := build(t, nil)
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			c := newCaller(mcp.ElicitResult{})
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, c.options())
			client.AddRoots(&mcp.Root{URI: "file:///a", Name: "A"})
			st, ct := mcp.NewInMemoryTransports()
			ss, err := s.Connect(t.Context(), st, nil)
			if err != nil {
				t.Fatal(err)
			}
			cs, err := client.Connect(t.Context(), ct, &mcp.ClientSessionOptions{ProtocolVersion: era})
			if err != nil {
				t.Fatal(err)
			}
			defer ss.Wait()
			defer cs.Close()
			if era == nativetest.Legacy {
				// The server asks by itself and says that it did.
				c.until(t, "the log of the roots", func() bool {
					return len(c.logged) == 1 && c.logged[0].Data == "Roots updated: 1 root(s) received from client"
				})
			}
			list := func() string { return nativetest.Text(nativetest.Call(t, cs, "get-roots-list", nil)) }
			if got := list(); !strings.HasPrefix(got, "Current MCP Roots (1 total):\n\n1. A\n   URI: file:///a\n\n") {
				t.Errorf("got %q", got)
			}
			client.AddRoots(&mcp.Root{URI: "file:///b"})
			if era == nativetest.Legacy {
				c.until(t, "the log of the new roots", func() bool { return len(c.logged) == 2 })
			}
			if got := list(); !strings.Contains(got, "(2 total)") || !strings.Contains(got, "2. Unnamed Root\n   URI: file:///b") {
				t.Errorf("got %q", got)
			}
			client.RemoveRoots("file:///a", "file:///b")
			if era == nativetest.Legacy {
				c.until(t, "the log of no roots", func() bool { return len(c.logged) == 3 })
			}
			if got := list(); !strings.Contains(got, "has given none") {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestHandshakeMeansOlderEra has a client that asks for the newest revision in
// a handshake, which only the older era has: it must be asked by a request.
func TestHandshakeMeansOlderEra(t *testing.T) {
	st, ct := mcp.NewInMemoryTransports()
	ss, err := build(t, nil).Connect(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := ct.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer ss.Wait()
	defer conn.Close()
	send := func(frame string) {
		t.Helper()
		m, err := jsonrpc.DecodeMessage([]byte(frame))
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{"elicitation":{}},"clientInfo":{"name":"t","version":"1"}}}`)
	if m, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(m.(*jsonrpc.Response).Result), `"2025-11-25"`) {
		t.Fatalf("%+v, %v", m, err)
	}
	send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"trigger-elicitation-request","arguments":{}}}`)
	m, err := conn.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := m.(*jsonrpc.Request); !ok || r.Method != "elicitation/create" {
		t.Errorf("got %+v", m)
	}
}
