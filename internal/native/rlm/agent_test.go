//go:build unix

package rlm

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// says is a reply of a model with code in it.
func says(code string) modeltest.Reply {
	return modeltest.Reply{Text: "I look.\n\n```python\n" + code + "\n```\n", Usage: modeltest.Usage{Input: 100, Output: 10}}
}

// formats are the wire formats that a scripted endpoint speaks.
var formats = map[string]func(s *modeltest.Server) map[string]any{
	"anthropic": func(s *modeltest.Server) map[string]any {
		return map[string]any{"model": "anthropic/claude-test", "base_url": s.URL, "key_env": "RLM_TEST_KEY"}
	},
	"openai": func(s *modeltest.Server) map[string]any {
		return map[string]any{"model": "openai/gpt-test", "base_url": s.ChatURL, "key_env": "RLM_TEST_KEY"}
	},
}

// withModel is a world whose kernel has a language model that follows a script.
func withModel(t *testing.T, set map[string]any) *world {
	t.Helper()
	t.Setenv("RLM_TEST_KEY", "key-of-the-test")
	w := newWorldWith(t, set, &Models{Open: model.Open})
	return w
}

func (w *world) subAgent(t *testing.T, args map[string]any) (answered, string, error) {
	t.Helper()
	text, res := w.call("rlm_sub_agent", args)
	var out answered
	if res.IsError {
		return out, text, &api.Error{Kind: kindOf(t, res), Message: text}
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out, text, nil
}

// A sub-agent looks at its inputs by code, asks about parts of them, and submits.
func TestSubAgent(t *testing.T) {
	for name, format := range formats {
		t.Run(name, func(t *testing.T) {
			s := modeltest.New(t,
				modeltest.Reply{Text: "```python\nprint(len(log), limit)\n```", Usage: modeltest.Usage{Input: 100, Output: 10}, Check: func(r modeltest.Request) error {
					body := string(r.Body)
					switch {
					case r.Key() != "key-of-the-test":
						return fmt.Errorf("the key is %q", r.Key())
					case !strings.Contains(body, "length 3000000") || !strings.Contains(body, "limit (int)"):
						return fmt.Errorf("it is not told what there is: %.2000s", body)
					case len(body) > 20_000:
						return fmt.Errorf("it is told %d bytes", len(body))
					}
					return nil
				}},
				modeltest.Reply{Text: "No code at all.", Usage: modeltest.Usage{Input: 100, Output: 10}, Check: func(r modeltest.Request) error {
					if !strings.Contains(string(r.Body), "3000000 7") {
						return fmt.Errorf("the output did not come back")
					}
					return nil
				}},
				says("parts = llm_query_batch(['a', 'b'])\nprint(parts)"),
				modeltest.Reply{Text: "one", Usage: modeltest.Usage{Input: 5, Output: 1}},
				modeltest.Reply{Status: 400, Type: "invalid_request_error", Message: "no"},
				says("1/0"),
				says("SUBMIT(answer=3, lines=[1])"),
				says("log = 'spoiled'\nSUBMIT('found', [1, 2])"),
			)
			w := withModel(t, format(s))
			w.exec("src = 'x' * 3_000_000")
			out, text, err := w.subAgent(t, map[string]any{
				"signature": "log: str, limit: int -> answer: str, lines: list[int]",
				"inputs":    map[string]any{"log": map[string]any{"$var": "src"}, "limit": 7},
			})
			if err != nil || string(out.Result) != `{"answer":"found","lines":[1,2]}` {
				t.Fatalf("it says %s, %v", text, err)
			}
			if len(out.Trajectory) != 6 || out.Trajectory[0].Output != "3000000 7" || out.Trajectory[1].Code != "" {
				t.Errorf("its steps are %+v", out.Trajectory)
			}
			testkit.Has(t, "a batch", out.Trajectory[2].Output, "one", "[error] ")
			testkit.Has(t, "an error", out.Trajectory[3].Output, "ZeroDivisionError")
			testkit.Has(t, "a wrong type", out.Trajectory[4].Output, "SUBMIT was refused", "answer is a int, not a str")
			if out.Usage.Calls != 8 || out.Usage.Input < 605 {
				t.Errorf("it used %+v", out.Usage)
			}
			testkit.Lacks(t, "the result", text, "key-of-the-test")
			// The caller's variables are as they were.
			w.is("len(src), 'log' in globals(), 'SUBMIT' in globals()", "(3000000, False, False)")
			if got, _ := w.call("rlm_usage", map[string]any{"reset": true}); !strings.Contains(got, `"llm_calls":8`) {
				t.Errorf("in all: %s", got)
			}
			if got, _ := w.call("rlm_usage", nil); !strings.Contains(got, `"llm_calls":0`) {
				t.Errorf("after a reset: %s", got)
			}
		})
	}
}

// What bounds a sub-agent holds, and is told.
func TestSubAgentBounds(t *testing.T) {
	s := modeltest.New(t)
	w := withModel(t, formats["anthropic"](s))
	ask := map[string]any{"signature": "q -> a: str", "inputs": map[string]any{"q": "?"}, "max_iterations": 2, "max_llm_calls": 1}

	// One query too many raises in the kernel. After the last step there is one more answer.
	s.Add(says("print(llm_query('1'))"), modeltest.Reply{Text: "first"}, says("print(llm_query('2'))"), modeltest.Reply{Text: `So: {"a": "last words"}`})
	out, text, err := w.subAgent(t, ask)
	if err != nil || string(out.Result) != `{"a":"last words"}` {
		t.Errorf("it says %s, %v", text, err)
	} else {
		testkit.Has(t, "one too many", out.Trajectory[1].Output, "RuntimeError", "max_llm_calls (1)")
	}
	s.Add(says("1"), says("2"), modeltest.Reply{Text: `{"a": 5}`})
	if _, text, err := w.subAgent(t, ask); err == nil || !strings.Contains(text, "a is a int") || !strings.Contains(text, `"trajectory"`) {
		t.Errorf("no answer: %s", text)
	}
	// Code that submits is an answer, too.
	s.Add(says("1"), says("2"), says("SUBMIT(a=q + '!')"))
	if out, text, err := w.subAgent(t, ask); err != nil || string(out.Result) != `{"a":"?!"}` {
		t.Errorf("it says %s, %v", text, err)
	}
	s.Add(says("1"), says("2"), modeltest.Reply{Text: "I don't know."})
	if _, text, err := w.subAgent(t, ask); err == nil || !strings.Contains(text, "the outputs are no JSON object") || strings.Contains(text, "invalid character") {
		t.Errorf("no answer: %s", text)
	}
	// It may share the kernel, and then what it does stays.
	s.Add(says("kept = q\nSUBMIT(a='x')"))
	ask["share"] = true
	if _, text, err := w.subAgent(t, ask); err != nil {
		t.Errorf("shared: %s", text)
	}
	w.is("kept, 'SUBMIT' in globals()", "('?', False)")
	delete(ask, "share")
	// One that ends its copy fails, and the kernel goes on.
	s.Add(says("import os; os._exit(1)"))
	if _, text, err := w.subAgent(t, ask); err == nil || !strings.Contains(text, "copy of the kernel ended") {
		t.Errorf("an end: %s", text)
	}
	w.is("kept", "'?'")

	for _, tt := range []struct {
		says string
		args map[string]any
	}{
		{"no ->", map[string]any{"signature": "nothing", "inputs": map[string]any{}}},
		{"inputs lacks q", map[string]any{"signature": "q -> a", "inputs": map[string]any{}}},
		{"inputs has z", map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": 1, "z": 2}}},
		{"no variable nowhere", map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": map[string]any{"$var": "nowhere"}}}},
		{"max_iterations", map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": 1}, "max_iterations": 0}},
	} {
		if _, text, err := w.subAgent(t, tt.args); err == nil || !strings.Contains(text, tt.says) {
			t.Errorf("%v: %s", tt.args, text)
		}
	}
}

// A result that is too long to show is in the kernel.
func TestSubAgentLongResult(t *testing.T) {
	s := modeltest.New(t, says("print('p' * 9000)"), says("SUBMIT(a='x' * 50_000)"))
	w := withModel(t, formats["anthropic"](s))
	out, text, err := w.subAgent(t, map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": "?"}})
	if err != nil || len(text) > 42_000 || !strings.Contains(string(out.Result), "the variable _result has all") || out.Cut == "" {
		t.Fatalf("%d characters, %v: %.300s", len(text), err, text)
	}
	w.is("len(_result['a']), len(_trajectory), len(_trajectory[0]['output'])", "(50000, 2, 9000)")
}

// Others wait while a sub-agent has the kernel itself, and two of them do not mix.
func TestSubAgentsShare(t *testing.T) {
	s := modeltest.New(t, says("seen = [q]"), says("seen.append(q); SUBMIT(a=str(seen))"), says("seen = [q]"), says("seen.append(q); SUBMIT(a=str(seen))"))
	w := withModel(t, formats["openai"](s))
	var wg sync.WaitGroup
	for _, q := range []string{"one", "two"} {
		wg.Go(func() {
			out, text, err := w.subAgent(t, map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": q}, "share": true})
			if want := fmt.Sprintf(`{"a":"['%[1]s', '%[1]s']"}`, q); err != nil || string(out.Result) != want {
				t.Errorf("it says %s, %v", text, err)
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			if got := w.exec("'SUBMIT' in globals()"); got != "False" {
				t.Errorf("between two steps of a sub-agent: %s", got)
			}
		})
	}
	wg.Wait()
}

// What ends the kernel that a sub-agent shares is told as a loss, and the next call works.
func TestSubAgentEndsItsKernel(t *testing.T) {
	s := modeltest.New(t, says("import os; os._exit(2)"))
	w := withModel(t, formats["openai"](s))
	w.exec("x = 1")
	if _, text, err := w.subAgent(t, map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": "?"}, "share": true}); err == nil || err.(*api.Error).Kind != api.KindLost {
		t.Errorf("it says %s, %v", text, err)
	}
	w.is("1 + 1", "2")
}

// A model that declines is an error, and no step.
func TestSubAgentDeclined(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{Text: "I can't help with that.", Stop: "refusal"})
	w := withModel(t, formats["anthropic"](s))
	if _, text, err := w.subAgent(t, map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": "?"}}); err == nil || !strings.Contains(text, "declined") {
		t.Errorf("it says %s, %v", text, err)
	}
}

// A sub-agent ends at its time, with what it has done.
func TestSubAgentTime(t *testing.T) {
	s := modeltest.New(t, says("import time; print('slow'); time.sleep(100)"))
	set := formats["anthropic"](s)
	set["budget"] = map[string]any{"time": "2s"}
	w := withModel(t, set)
	_, text, err := w.subAgent(t, map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": "?"}})
	if err == nil || err.(*api.Error).Kind != api.KindTimeout || !strings.Contains(text, "settings.budget.time") || !strings.Contains(text, "time.sleep") {
		t.Errorf("it says %s, %v", text, err)
	}
	w.is("1 + 1", "2")
}

// Without a key all but the models works.
func TestNoKey(t *testing.T) {
	w := newWorldWith(t, map[string]any{"key_env": "RLM_TEST_NO_KEY"}, &Models{Open: model.Open})
	w.is("1 + 1", "2")
	if got := w.exec("llm_query('?')"); !strings.Contains(got, "RLM_TEST_NO_KEY") {
		t.Errorf("it says %s", got)
	}
	if _, text, err := w.subAgent(t, map[string]any{"signature": "q -> a", "inputs": map[string]any{"q": 1}}); err == nil || !strings.Contains(text, "RLM_TEST_NO_KEY") {
		t.Errorf("it says %s", text)
	}
}

func TestBudgetOfASession(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{Text: "one"}, modeltest.Reply{Text: "two"})
	set := formats["openai"](s)
	set["budget"] = map[string]any{"calls": 2}
	w := withModel(t, set)
	w.is("llm_query('1'), llm_query('2')", "('one', 'two')")
	if got := w.exec("llm_query('3')"); !strings.Contains(got, "RuntimeError") {
		t.Errorf("one too many: %s", got)
	}
}

func TestCodeOf(t *testing.T) {
	for text, want := range map[string]string{
		"no code":                              "",
		"```python\nx = 1\n```":                "x = 1",
		"a\n```py\nx = 1\n```\nb\n```\ny\n```": "x = 1\ny",
		"```python\r\nx\r\n```":                "x",
		"```python\nnever closed":              "",
	} {
		if got := codeOf(text); got != want {
			t.Errorf("%q has %q", text, got)
		}
	}
}
