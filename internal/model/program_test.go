//go:build unix

package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// programEnviron has what the program needs, and much that it must not get.
var programEnviron = environ("PATH", os.Getenv("PATH"), "HOME", "/home/someone", "CLAUDE_CODE_OAUTH_TOKEN", "token",
	"ANTHROPIC_API_KEY", testKey, "OPENAI_API_KEY", testKey, "MY_KEY", testKey, "TINE_TOKEN", "secret", "CLAUDECODE", "1")

func openProgram(t *testing.T, p *modeltest.Program, name string, o model.Options) model.Model {
	t.Helper()
	o.CLI, o.Environ = p.Path, programEnviron
	m, err := model.Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// said are the lines of a run that says a text.
func said(text string) []string {
	half := len(text) / 2
	piece := func(s string) string {
		return fmt.Sprintf(`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":%q}}}`, s)
	}
	return []string{
		"a remark that is no JSON", `{"type":"system","subtype":"init"}`, piece(text[:half]), piece(text[half:]),
		`{"type":"assistant","message":{"model":"claude-sonnet-4-5"}}`, `{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":"end_turn"}}}`,
		result(fmt.Sprintf(`"subtype":"success","stop_reason":"end_turn","result":%q`, text)),
	}
}

func result(fields string) string {
	return `{"type":"result","total_cost_usd":0.25,"usage":{"input_tokens":11,"output_tokens":7,"cache_read_input_tokens":5,"cache_creation_input_tokens":3},` + fields + `}`
}

func TestProgramQuestion(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	p := modeltest.NewProgram(t, modeltest.Run{Lines: said("Hello, world")})
	m := openProgram(t, p, "claude-code/sonnet", model.Options{})
	r := question("Greet <me>.\n")
	r.System, r.MaxTokens, r.Budget = "Be brief.", 7777, model.NewBudget(model.Limits{Cost: 2})
	var pieces []string
	reply := ask(t, m, r, func(text string) { pieces = append(pieces, text) })
	want := model.Reply{
		Message: model.Message{Role: model.RoleAssistant, Text: "Hello, world"}, Stop: model.StopEnd, Model: "claude-sonnet-4-5",
		Usage: model.Usage{InputTokens: 11, OutputTokens: 7, CacheRead: 5, CacheWrite: 3, Calls: 1, Cost: 0.25},
	}
	if !reflect.DeepEqual(reply, want) || !reflect.DeepEqual(pieces, []string{"Hello,", " world"}) {
		t.Errorf("reply %+v in the pieces %q", reply, pieces)
	}
	if got := p.Read(0, "input"); got != "Greet <me>.\n" {
		t.Errorf("input %q", got)
	}
	if got := p.Read(0, "system"); got != "Be brief." {
		t.Errorf("system prompt %q", got)
	}
	args := p.Read(0, "args")
	testkit.Has(t, "arguments", args, "-p\n--output-format\nstream-json\n", "--tools\n\n", "--model=sonnet\n", "--max-budget-usd\n2.000000\n", "--no-session-persistence")
	testkit.Lacks(t, "arguments", args, "Greet", "brief", "--json-schema")
	env := p.Read(0, "env")
	testkit.Has(t, "environment", env, "HOME=/home/someone\n", "CLAUDE_CODE_OAUTH_TOKEN=token\n", "CLAUDE_CODE_MAX_OUTPUT_TOKENS=7777\n", "CLAUDE_CODE_SAFE_MODE=1\n", "CLAUDE_CODE_DISABLE_ATTACHMENTS=1\n")
	testkit.Lacks(t, "environment", env, testKey, "secret", "ANTHROPIC_", "CLAUDECODE=")
	if u := r.Budget.Usage(); u != want.Usage {
		t.Errorf("the budget paid for %+v", u)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestProgramWithAKey(t *testing.T) {
	p := modeltest.NewProgram(t, modeltest.Run{Lines: said("Hello")})
	ask(t, openProgram(t, p, "claude-code", model.Options{KeyEnv: "MY_KEY", BaseURL: "http://127.0.0.1:8080/v1"}), question("?"), nil)
	env := p.Read(0, "env")
	testkit.Has(t, "environment", env, "ANTHROPIC_API_KEY="+testKey+"\n", "ANTHROPIC_BASE_URL=http://127.0.0.1:8080\n")
	testkit.Lacks(t, "environment", env, "MY_KEY", "OPENAI")
	testkit.Lacks(t, "arguments", p.Read(0, "args"), testKey, "--model")
}

func TestProgramTools(t *testing.T) {
	p := modeltest.NewProgram(t,
		modeltest.Run{Lines: []string{result(`"subtype":"success","stop_reason":"tool_use","result":"{}",` +
			`"structured_output":{"text":"Adding.","calls":[{"name":"add","arguments":{"n":1}},{"name":"stop"}]}`)}},
		modeltest.Run{Lines: []string{result(`"subtype":"success","stop_reason":"tool_use","result":"{}","structured_output":{"text":"Done.","calls":[]}`)}})
	m := openProgram(t, p, "claude-code", model.Options{})
	r := question("Add.")
	r.System = "Be brief."
	r.Tools = []model.Tool{{Name: "add", Description: "Adds.", Schema: json.RawMessage(`{"type": "object"}`)}, {Name: "stop"}}
	var text strings.Builder
	reply := ask(t, m, r, func(s string) { text.WriteString(s) })
	want := []model.Call{{ID: "call_1", Name: "add", Arguments: json.RawMessage(`{"n":1}`)}, {ID: "call_2", Name: "stop", Arguments: json.RawMessage(`{}`)}}
	if reply.Stop != model.StopTools || reply.Message.Text != "Adding." || text.String() != "Adding." || !reflect.DeepEqual(reply.Message.Calls, want) {
		t.Errorf("reply %+v", reply)
	}
	testkit.Has(t, "arguments", p.Read(0, "args"), "--json-schema", `"enum":["add","stop"]`)
	testkit.Has(t, "system prompt", p.Read(0, "system"), "Be brief.", "Tool add: Adds.\nSchema: {\"type\":\"object\"}")
	r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.RoleUser, Results: []model.Result{{ID: "call_1", Text: "<2>"}, {ID: "call_2", IsError: true}}})
	if reply = ask(t, m, r, nil); reply.Stop != model.StopEnd || reply.Message.Text != "Done." || reply.Message.Calls != nil {
		t.Errorf("reply %+v", reply)
	}
	testkit.Has(t, "input", p.Read(1, "input"), `{"role":"user","text":"Add."}`, `"calls":[{"id":"call_1","name":"add","arguments":{"n":1}}`, `{"id":"call_1","text":"<2>"}`)
}

func TestProgramThatFails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		run   modeltest.Run
		kind  api.Kind
		again bool
		words []string
	}{
		{"not logged in", modeltest.Run{Code: 1, Lines: []string{
			`{"type":"assistant","message":{"model":"<synthetic>"},"error":"authentication_failed"}`,
			result(`"subtype":"success","is_error":true,"result":"Not logged in"`)}}, api.KindRefused, false, []string{"log in"}},
		{"wrong key", modeltest.Run{Code: 1, Lines: []string{result(`"subtype":"success","is_error":true,"api_error_status":401,"result":"Invalid"`)}},
			api.KindRefused, false, []string{"refuses the key"}},
		{"rate limit", modeltest.Run{Code: 1, Lines: []string{result(`"subtype":"success","is_error":true,"api_error_status":429,"result":"Slow down"`)}},
			api.KindRefused, true, []string{"limits the rate", "Slow down"}},
		{"overload", modeltest.Run{Code: 1, Lines: []string{result(`"subtype":"success","is_error":true,"api_error_status":529,"result":"Busy"`)}},
			api.KindInfrastructure, true, []string{"failed", "Busy"}},
		{"too many turns", modeltest.Run{Code: 1, Lines: []string{result(`"subtype":"error_max_turns","is_error":true`)}},
			api.KindInfrastructure, true, []string{"error_max_turns"}},
		{"no result", modeltest.Run{Code: 2, Words: "unknown option --tools; " + testKey}, api.KindInfrastructure, true, []string{"exit status 2", "unknown option --tools", "claude -p"}},
		{"nothing at all", modeltest.Run{}, api.KindInfrastructure, true, []string{"ended without a result"}},
		{"too much", modeltest.Run{Lines: []string{strings.Repeat("x", 200<<10)}}, api.KindInfrastructure, false, []string{"larger than 102400 bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := modeltest.NewProgram(t, tt.run)
			e := failed(t, openProgram(t, p, "claude-code", model.Options{Retries: -1, MaxReply: 100 << 10}), question("?"), nil)
			if e.Kind != tt.kind || e.Retryable != tt.again {
				t.Errorf("error %+v", e)
			}
			testkit.Has(t, "error", e.Message, append(tt.words, `model "claude-code"`)...)
		})
	}
}

// The form that was asked for may be missing.
func TestProgramWithoutTheForm(t *testing.T) {
	p := modeltest.NewProgram(t, modeltest.Run{Lines: said("Hello")})
	r := question("?")
	r.Tools = []model.Tool{{Name: "add"}}
	e := failed(t, openProgram(t, p, "claude-code", model.Options{Retries: -1}), r, nil)
	if e.Kind != api.KindInfrastructure || !e.Retryable {
		t.Errorf("error %+v", e)
	}
}

func TestProgramThatIsNotThere(t *testing.T) {
	for _, path := range []string{"/nonexistent/claude", "/etc/passwd"} {
		m, err := model.Open("claude-code/opus", model.Options{CLI: path, Environ: programEnviron})
		if err != nil {
			t.Fatal(err)
		}
		e := failed(t, m, question("?"), nil)
		if e.Kind != api.KindInfrastructure || e.Retryable {
			t.Errorf("error %+v", e)
		}
		testkit.Has(t, "error", e.Message, `model "claude-code/opus"`, path, "install Claude Code")
	}
	t.Setenv("PATH", t.TempDir())
	m, err := model.Open("claude-code", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "error", failed(t, m, question("?"), nil).Message, "not on PATH")
}

func TestProgramTakesLess(t *testing.T) {
	p := modeltest.NewProgram(t)
	r := question("?")
	r.Temperature = new(0.0)
	if e := failed(t, openProgram(t, p, "claude-code", model.Options{}), r, nil); e.Kind != api.KindInvalid {
		t.Errorf("error %+v", e)
	}
}

// A cancelled call ends the program and what it started.
func TestCancelAProgram(t *testing.T) {
	p := modeltest.NewProgram(t, modeltest.Run{Lines: said("Hello")[:4], Hang: true})
	ctx, cancel := context.WithCancel(t.Context())
	m := openProgram(t, p, "claude-code", model.Options{})
	done := make(chan error, 1)
	go func() {
		_, err := m.Ask(ctx, question("?"), func(string) {})
		done <- err
	}()
	testkit.Eventually(t, "the program hangs", func() bool { return p.Has(0, "child") })
	cancel()
	err := testkit.Within(t, "the end of the call", done)
	if e := asAPI(t, err); e.Kind != api.KindRefused || !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	gone(t, p, 0)
}

// gone waits until the process that a run started has ended.
func gone(t *testing.T, p *modeltest.Program, run int) {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(p.Read(run, "child")))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of the program's child", func() bool {
		if syscall.Kill(pid, 0) != nil {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // an orphan may wait for its parent
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
}

// A program that hangs is ended with the attempt. The next one is started anew.
func TestProgramThatHangs(t *testing.T) {
	runs := []modeltest.Run{{Hang: true}}
	for range 20 { // on a slow machine some of these take too long as well
		runs = append(runs, modeltest.Run{Lines: said("Hello")})
	}
	p := modeltest.NewProgram(t, runs...)
	m := openProgram(t, p, "claude-code", model.Options{Timeout: 3 * time.Second, Total: time.Hour, Retries: len(runs)})
	if reply := ask(t, m, question("?"), nil); reply.Message.Text != "Hello" {
		t.Errorf("reply %+v", reply)
	}
	gone(t, p, 0)
}

// Only a few programs run at once.
func TestProgramsAtOnce(t *testing.T) {
	var runs []modeltest.Run
	for range 8 {
		runs = append(runs, modeltest.Run{Hang: true})
	}
	p := modeltest.NewProgram(t, runs...)
	m := openProgram(t, p, "claude-code", model.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range len(runs) {
		wg.Go(func() {
			if _, err := m.Ask(ctx, question("?"), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
		})
	}
	testkit.Eventually(t, "four programs", func() bool { return p.Has(3, "child") })
	cancel()
	wg.Wait()
	if p.Has(4, "args") {
		t.Error("a fifth program was started")
	}
}
