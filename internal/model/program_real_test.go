//go:build unix

package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// The real program answers with what the scripted endpoint says to it, sees no tools
// but the form, reads no files, and repeats nothing by itself.
func TestRealProgram(t *testing.T) {
	path := testkit.ClaudeCode(t)
	form := modeltest.Call{ID: "toolu_1", Name: "StructuredOutput", Arguments: `{"text":"Adding.","calls":[{"name":"add","arguments":{"n":1}}]}`}
	s := modeltest.New(t,
		modeltest.Reply{Text: "Hello, world", Usage: modeltest.Usage{Input: 11, Output: 7, CacheRead: 5, CacheWrite: 3}},
		modeltest.Reply{Calls: []modeltest.Call{form}, Usage: modeltest.Usage{Input: 11, Output: 7}},
		modeltest.Reply{Status: 500, Type: "api_error", Message: "oops"},
		modeltest.Reply{Status: 401, Type: "authentication_error", Message: "no such key"},
		modeltest.Reply{Text: "Too lo", Stop: "length", Usage: modeltest.Usage{Input: 1_000_000, Output: 1_000_000}})
	m, err := model.Open("claude-code/claude-sonnet-4-5", model.Options{
		CLI: path, BaseURL: s.URL, KeyEnv: "MY_KEY", Retries: -1,
		Environ: environ("PATH", os.Getenv("PATH"), "HOME", t.TempDir(), "MY_KEY", testKey),
	})
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret.txt")
	if err := os.WriteFile(secret, []byte("the secret word"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := question("Greet the author of @" + secret + " please.")
	r.System, r.MaxTokens = "Be brief.", 7777
	var text strings.Builder
	reply := ask(t, m, r, func(s string) { text.WriteString(s) })
	if reply.Message.Text != "Hello, world" || text.String() != "Hello, world" || reply.Stop != model.StopEnd || reply.Model != "claude-sonnet-4-5" {
		t.Errorf("reply %+v, streamed %q", reply, text.String())
	}
	if u := reply.Usage; u.InputTokens != 11 || u.OutputTokens != 7 || u.CacheRead != 5 || u.CacheWrite != 3 || u.Cost <= 0 || u.CostUnknown {
		t.Errorf("usage %+v", u)
	}
	sent := s.Requests()[0]
	testkit.Has(t, "request", string(sent.Body), "@"+secret)
	testkit.Lacks(t, "request", string(sent.Body), "the secret word")
	var got struct {
		MaxTokens int `json:"max_tokens"`
		Tools     []struct{ Name string }
		System    []struct{ Text string }
	}
	sent.Decode(t, &got)
	if sent.Key() != testKey || got.MaxTokens != 7777 || len(got.Tools) != 0 || got.System[len(got.System)-1].Text != "Be brief." {
		t.Errorf("the program sent %s", sent.Body)
	}

	r.Tools = []model.Tool{{Name: "add", Description: "Adds.", Schema: json.RawMessage(`{"type":"object"}`)}}
	reply = ask(t, m, r, nil)
	if reply.Stop != model.StopTools || reply.Message.Text != "Adding." || len(reply.Message.Calls) != 1 || string(reply.Message.Calls[0].Arguments) != `{"n":1}` {
		t.Errorf("reply %+v", reply)
	}
	s.Requests()[1].Decode(t, &got)
	if len(got.Tools) != 1 || got.Tools[0].Name != "StructuredOutput" {
		t.Errorf("the model was offered %v", got.Tools)
	}

	r.Tools = nil
	if e := failed(t, m, r, nil); e.Kind != api.KindInfrastructure || e.Status != 500 || len(s.Requests()) != 3 {
		t.Errorf("error %+v after %d requests", e, len(s.Requests()))
	}
	if e := failed(t, m, r, nil); e.Kind != api.KindRefused || e.Status != 401 {
		t.Errorf("error %+v", e)
	} else {
		testkit.Has(t, "error", e.Message, "MY_KEY")
	}

	// By itself the program would go on with another request.
	reply = ask(t, m, r, nil)
	if reply.Message.Text != "Too lo" || reply.Stop != model.StopLength || reply.Usage.OutputTokens != 1_000_000 || reply.Usage.Cost != 18 {
		t.Errorf("reply %+v", reply)
	}
}
