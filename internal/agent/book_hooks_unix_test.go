//go:build linux || darwin

package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/testkit"
)

// hooked is a blueprint with hooks that are scripts; more are further keys of it.
func hooked(scripts []string, more string) string {
	type h struct {
		Command string   `json:"command"`
		Args    []string `json:"args"`
		OnError string   `json:"on_error,omitempty"`
	}
	var list []h
	for _, script := range scripts {
		one := h{Command: "sh"}
		if rest, ok := strings.CutPrefix(script, "continue:"); ok {
			script, one.OnError = rest, "continue"
		}
		one.Args = []string{"-c", script, "hook", "${params.prompt}", "${scope.api_key}"}
		list = append(list, one)
	}
	b, err := json.Marshal(map[string]any{"on_run_start": list})
	if err != nil {
		panic(err)
	}
	return "parameters: {type: object, properties: {prompt: {type: string, maxLength: 20}, n: {type: integer, default: 2}}, required: [prompt], additionalProperties: false}\nscope: {api_key: scoped-secret}\nhooks: " + string(b) + "\n" + more
}

func TestStartHooks(t *testing.T) {
	const change = `echo '{"parameters":{"prompt":"changed","n":12345678901234567}}'`
	for name, tt := range map[string]struct {
		hooks  []string
		prompt string // after them; empty for a refusal
		kind   api.Kind
		words  string
	}{
		"silent":                 {[]string{"cat >/dev/null"}, "hi", "", ""},
		"changes":                {[]string{change}, "changed", "", ""},
		"each sees the change":   {[]string{change, `[ "$1" = changed ] && cat | grep -q '"prompt":"changed"' && echo '{"parameters":{"prompt":"twice"}}'`}, "twice", "", ""},
		"refuses":                {[]string{`echo '{"refuse":"not on Sundays"}'`}, "", api.KindRefused, "agent a: hooks.on_run_start[0] refuses the run: not on Sundays"},
		"refuses in spite of it": {[]string{`continue:echo '{"refuse":"no"}'`}, "", api.KindRefused, "refuses the run: no"},
		"fails":                  {[]string{"true", "exit 3"}, "", api.KindInfrastructure, "hooks.on_run_start[1] failed, so the run is refused: it ended with exit status 3"},
		"fails and goes on":      {[]string{"continue:" + change + "; exit 3"}, "hi", "", ""},
		"answers nonsense":       {[]string{"echo ok"}, "", api.KindInfrastructure, "it must print nothing, or one JSON object"},
		"gives what is wrong":    {[]string{`echo '{"parameters":{"prompt":7}}'`}, "", api.KindInfrastructure, "the parameters that it gave: the parameters do not fit the agent: /prompt: want string"},
		"wrong and goes on":      {[]string{`continue:echo '{"parameters":{"m":7}}'`, "continue:" + change}, "changed", "", ""},
		"gives too much":         {[]string{`printf '{"parameters":{"prompt":"'; head -c 1100000 /dev/zero | tr '\0' x; echo '"}}'`}, "", api.KindInfrastructure, "bytes of JSON and may have 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			s := shelve(t, map[string]string{"agents/a/agent.yaml": hooked(tt.hooks, "")})
			res, err := s.Resolve(t.Context(), "a", input(hi))
			if tt.prompt == "" {
				refusedWith(t, err, tt.kind, tt.words)
				return
			}
			if err != nil || res.Parameters["prompt"] != tt.prompt {
				t.Fatalf("%+v, %v", res.Parameters, err)
			}
			if tt.prompt == "changed" {
				if b, err := json.Marshal(res.Parameters["n"]); err != nil || string(b) != "12345678901234567" {
					t.Errorf("a number became %s (%v)", b, err)
				}
			}
		})
	}
}

func TestHookDocument(t *testing.T) {
	s := shelve(t, nil)
	out := filepath.Join(s.dir, "out")
	s.write("agents/a/agent.yaml", hooked([]string{"cat >" + out}, ""))
	in := input(hi)
	in.Resume, in.ProjectDir, in.Parent, in.ParentAgent = true, "/p", "ses_0", "boss"
	if _, err := s.Resolve(t.Context(), "a", in); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(must(os.ReadFile(out)), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"hook": "on_run_start", "run_id": "run_1", "session_id": "ses_1", "agent_name": "a", "resume": true, "parameters": map[string]any{"prompt": "hi", "n": 2.0},
		"project_dir": "/p", "parent_session_id": "ses_0", "parent_agent_name": "boss",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// A callback's parameters are the coordinator's own, also for a hook.
	in.Callback, in.Parameters = true, map[string]any{"prompt": strings.Repeat("told ", 20), "m": 1}
	if _, err := s.Resolve(t.Context(), "a", in); err != nil {
		t.Errorf("a callback: %v", err)
	}
	testkit.Has(t, "the document of a callback", string(must(os.ReadFile(out))), `"callback":true`, `"m":1`, "told told")
}

func TestHookKeepsSecrets(t *testing.T) {
	t.Setenv("GATEWAY_TOKEN", "gateway-token-7") // which no hook is given
	s := shelve(t, map[string]string{"agents/a/agent.yaml": hooked([]string{`echo "with $2 and $GATEWAY_TOKEN. the end" >&2; exit 1`}, "")})
	_, err := s.Resolve(t.Context(), "a", input(hi))
	if err == nil || strings.Contains(err.Error(), "scoped-secret") {
		t.Errorf("%v", err)
	}
	testkit.Has(t, "the log", s.log.String(), "exit status 1", "and . the end", "hooks.on_run_start[0]")
	testkit.Lacks(t, "the log", s.log.String(), "scoped-secret", "gateway-token-7")
	if len(s.secrets) == 0 || s.secrets[0] != "scoped-secret" {
		t.Errorf("told of %q", s.secrets)
	}
}

func TestFinishHooks(t *testing.T) {
	s := shelve(t, nil)
	out := filepath.Join(s.dir, "out")
	hook := func(script string) blueprint.Command {
		return blueprint.Command{Command: "sh", Args: []string{"-c", script}, Timeout: 1e10}
	}
	run := api.Run{ID: "run_1", Session: "ses_1", Agent: "a", State: api.RunFailed, Parent: "ses_0", Parameters: json.RawMessage(`{"n":12345678901234567890}`), Error: &api.Error{Kind: api.KindTool, Message: "it broke"}}
	if err := s.Finished(t.Context(), []blueprint.Command{hook("exit 1"), hook("echo nonsense; cat >" + out), {Command: "nowhere", Timeout: 1e10}}, run); err != nil {
		t.Fatal(err)
	}
	const want = `{"hook":"on_run_finish","run_id":"run_1","session_id":"ses_1","agent_name":"a","resume":false,"parameters":{"n":12345678901234567890},"parent_session_id":"ses_0","state":"failed","error":{"kind":"tool","message":"it broke","retryable":false}}`
	if got := string(must(os.ReadFile(out))); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	testkit.Has(t, "the log", s.log.String(), "hooks.on_run_finish[0]", "exit status 1", "hooks.on_run_finish[2]", "not on PATH")
	testkit.Lacks(t, "the log", s.log.String(), "hooks.on_run_finish[1]")
}

// TestHooksAfterARestart: hooks that a restart cut off are run once more, and no third time.
func TestHooksAfterARestart(t *testing.T) {
	s := shelve(t, nil)
	out := filepath.Join(s.dir, "out")
	s.write("agents/a/agent.yaml", `hooks: {on_run_finish: {command: sh, args: ["-c", "echo begun >>`+out+`; exec sleep 1000"]}}`+"\n")
	r := &rig{t: t, dir: t.TempDir(), book: &book{}, o: Options{Blueprints: s.Book, Log: s.log.Logger()}}
	r.open()
	defer func() { r.close() }()
	run := r.agent(ada, "a")
	c := r.claim(runner.Description{ID: "r1", Instance: "1", Executors: []string{"claude-code"}})
	r.report(c, runner.Report{Running: true})
	r.report(c, done("done"))
	for n := 1; n <= hookTries; n++ {
		testkit.Eventually(t, "the hook runs", func() bool {
			text, err := os.ReadFile(out)
			return (err == nil || errors.Is(err, os.ErrNotExist)) && strings.Count(string(text), "begun") == n
		})
		r.again()
	}
	testkit.Eventually(t, "the hooks are given up", func() bool { return len(must(r.db.WaitingCallbacks(t.Context()))) == 0 })
	testkit.Has(t, "the log", s.log.String(), "given up", run.ID)
	if text := string(must(os.ReadFile(out))); strings.Count(text, "begun") != hookTries || r.state(run.ID) != api.RunCompleted {
		t.Errorf("the hook wrote %q, and the run is %s", text, r.state(run.ID))
	}
	if left := must(os.ReadDir(filepath.Join(s.dir, "hooks"))); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
