package openenv

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/tine-mcp/tine/internal/testkit"
)

// graded is a host whose environment has a reward.
func graded(score func(c Call) string) *fake {
	f := newFake()
	f.set("game", func(e *Environment) { e.Reward = "grader__score" })
	f.tools = append(f.tools, `{"name":"score","inputSchema":{"properties":{"step":{},"tool_name":{},"reset":{},"error":{},"result":{},"unknown":{}}}}`)
	step := f.answer
	f.answer = func(s *fakeSession, c Call) string {
		if c.Tool == "score" {
			return score(c)
		}
		return step(s, c)
	}
	return f
}

func TestReward(t *testing.T) {
	f := graded(func(c Call) string {
		return `{"content":[],"structuredContent":{"reward":1,"done":true,"why":"right","metadata":{"more":[1]}}}`
	})
	url, _ := serve(t, f)
	p := dial(t, url+"/ws")
	p.say(`{"type":"reset","data":{"seed":9,"level":"hard"}}`)
	answer := p.say(add)
	testkit.Has(t, "a step", answer, `"reward":1.0,"done":true`, `"why":"right"`, `"more":[1]`, `"call":"call_1"`)
	// It is called in a view of its own, and the agent's has not got it.
	if c := f.calls[0].View; c.Except != "grader__score" || c.Servers[0] != "game" {
		t.Errorf("the agent's view is %+v", c)
	}
	c := f.calls[1]
	if c.Scores != "call_1" {
		t.Errorf("it says that it scores %q", c.Scores)
	}
	if !c.View.Aside || c.View.Servers[0] != "grader" || c.Tool != "score" || c.Session != "ses_1" {
		t.Errorf("the reward tool is called by %+v", c)
	}
	var args map[string]json.RawMessage
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		t.Fatal(err)
	}
	if len(args) != 5 || string(args["step"]) != "1" || string(args["tool_name"]) != `"add"` || string(args["reset"]) != `{"seed":9,"level":"hard"}` || string(args["error"]) != "null" || !strings.Contains(string(args["result"]), `"data":1`) {
		t.Errorf("its arguments are %s", c.Arguments)
	}
	if len(f.notes) != 1 || f.notes[0].Call != "call_1" || *f.notes[0].Reward != 1 {
		t.Errorf("noted: %+v", f.notes)
	}
	if in := f.opened[0]; fmt.Sprint(in.Servers) != "[game grader]" {
		t.Errorf("the session has %v", in.Servers)
	}
	// A list of tools, and a call past the steps, are not scored.
	testkit.Has(t, "a list", p.say(list), `"reward":null`)
	p.say(`{"type":"mcp","data":` + rpcText("tools/call", `{"name":"add"}`) + `}`)
	if len(f.calls) != 3 {
		t.Errorf("%d calls", len(f.calls))
	}
}

// A step that can't be scored ends the episode.
func TestUnscored(t *testing.T) {
	for name, answer := range map[string]string{
		"its own error": `{"content":[{"type":"text","text":"boom"}],"isError":true}`,
		"nothing":       `{"content":[]}`,
		"a text":        `{"content":[{"type":"text","text":"good"}]}`,
		"a list":        `{"content":[],"structuredContent":{"reward":[1]}}`,
		"no number":     `{"content":[],"structuredContent":{"reward":"1"}}`,
		"done":          `{"content":[],"structuredContent":{"reward":1,"done":"yes"}}`,
		"no reward":     `{"content":[],"structuredContent":{"done":true}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := graded(func(Call) string { return answer })
			url, _ := serve(t, f)
			p := begin(t, url+"/ws")
			testkit.Has(t, "a step", p.say(add), "SESSION_ERROR", "can't be scored by grader__score (environments.game.reward)")
			p.over(websocket.StatusNormalClosure)
			if open := f.open(); len(open) > 0 {
				t.Errorf("open: %v", open)
			}
		})
	}
	f := graded(nil)
	f.tools = f.tools[:2]
	url, _ := serve(t, f)
	testkit.Has(t, "a reward tool that is not there", begin(t, url+"/ws").say(add), "SESSION_ERROR", "there is no such tool")
}

func TestReadScore(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{`1`, `{"observation":null,"reward":1.0,"done":false}`},
		{`-0.25`, `{"observation":null,"reward":-0.25,"done":false}`},
		{`1e30`, `{"observation":null,"reward":1e+30,"done":false}`},
		{`true`, `{"observation":null,"reward":1.0,"done":false}`},
		{`false`, `{"observation":null,"reward":0.0,"done":false}`},
		{`null`, `{"observation":null,"reward":null,"done":false}`},
		{`" 0.5\n"`, `{"observation":null,"reward":0.5,"done":false}`},
		{`"{\"reward\": 2, \"done\": true}"`, `{"observation":null,"reward":2.0,"done":true}`},
		{`{"reward":null,"done":true,"metadata":5}`, `{"observation":null,"reward":null,"done":true,"metadata":{"metadata":5}}`},
	} {
		var out outcome
		if err := readScore(json.RawMessage(tt.data), &out); err != nil {
			t.Errorf("%s: %v", tt.data, err)
			continue
		}
		if b, err := encode(out); err != nil || strings.TrimSpace(string(b)) != tt.want {
			t.Errorf("%s gives %s, %v", tt.data, b, err)
		}
	}
	for _, data := range []string{``, `"good"`, `[1]`, `{}`, `{"reward":1e999}`} {
		if err := readScore(json.RawMessage(data), new(outcome)); err == nil {
			t.Errorf("%s is a score", data)
		}
	}
}
