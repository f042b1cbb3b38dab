package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store/sqlite/sqlitetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A shelf is a Book on folders and a store of its own, with what a config says.
type shelf struct {
	*Book
	t       *testing.T
	dir     string
	agents  config.Agents
	env     map[string]string
	servers []string
	may     []string // servers that anybody but otto may use
	secrets []string
	log     testkit.Log
}

func shelve(t *testing.T, files map[string]string) *shelf {
	t.Helper()
	s := &shelf{t: t, dir: t.TempDir(), env: map[string]string{"API_KEY": "gateway-key-1", "OTHER": "other-secret"}, servers: []string{"files", "memory", "vault"}, may: []string{"files", "memory"}}
	s.agents = config.Agents{Env: []string{"API_KEY"}, Executors: []config.Executor{{Name: "bin", Type: config.ExecutorProcedural, Command: "/bin/x"}}}
	for name, text := range files {
		s.write(name, text)
	}
	hooks, err := hook.New(hook.Options{Dir: filepath.Join(s.dir, "hooks")})
	if err != nil {
		t.Fatal(err)
	}
	db := sqlitetest.Open(t, s.dir)
	t.Cleanup(func() { db.Close() })
	folders := blueprint.Folders{filepath.Join(s.dir, "agents")}
	s.Book = NewBook(BookOptions{
		Store: blueprint.NewStore(func() blueprint.Folders { return folders }, Documents(db)), Hooks: hooks,
		Agents:  func() config.Agents { return s.agents },
		Getenv:  func(name string) (string, bool) { v, ok := s.env[name]; return v, ok },
		Servers: func() []string { return s.servers },
		Starts: func(owner string, _ []byte, server string) bool {
			return owner == "otto" || slices.Contains(s.may, server)
		},
		Settings: func(executor string, settings map[string]any) error {
			if v, ok := settings["turns"]; ok && fmt.Sprint(v) != "3" {
				return fmt.Errorf("executor_config.turns: %s wants 3", executor)
			}
			return nil
		},
		Secret: func(values []string) { s.secrets = append(s.secrets, values...) },
		Log:    s.log.Logger(),
	})
	return s
}

func (s *shelf) write(name, text string) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shelf) put(who identity.Principal, name, body string) error {
	_, _, err := s.PutAgent(s.t.Context(), who, name, json.RawMessage(body))
	return err
}

// input is a run of ada's.
func input(parameters map[string]any) Input {
	return Input{Run: "run_1", Session: "ses_1", Parameters: parameters, Owner: "ada"}
}

var hi = map[string]any{"prompt": "hi"}

func TestBookResolves(t *testing.T) {
	s := shelve(t, map[string]string{
		"agents/reviewer/agent.yaml": `
system_prompt: "${params.repo} of ${scope.tenant} with ${env.API_KEY} in ${runtime.run_id} of ${runtime.session_id}"
parameters: {type: object, properties: {repo: {type: string}, turns: {type: integer, default: 3}}, required: [repo]}
mcp_servers: {files: {}, notes: {ref: memory}}
executor_config: {turns: "${params.turns}"}
scope: {tenant: none}
`,
		"agents/prog.md": "---\nexecutor: bin\n---\n",
	})
	in := input(map[string]any{"repo": "tine ${env.API_KEY}"})
	in.Scope = map[string]string{"tenant": "7"}
	res, err := s.Resolve(t.Context(), "reviewer", in)
	if err != nil {
		t.Fatal(err)
	}
	filled, err := res.Fill(nil)
	if want := "tine ${env.API_KEY} of 7 with gateway-key-1 in run_1 of ses_1"; err != nil || filled.SystemPrompt != want {
		t.Errorf("prompt %q, want %q (%v)", filled.SystemPrompt, want, err)
	}
	if res.Procedural || res.Made != access.MadeByFile || res.Servers["notes"].Ref != "memory" || !slices.Contains(s.secrets, "gateway-key-1") {
		t.Errorf("%+v, secrets %q", res, s.secrets)
	}
	if res, err := s.Resolve(t.Context(), "prog", input(hi)); err != nil || !res.Procedural || res.Executor != "bin" {
		t.Errorf("%+v, %v", res, err)
	}
	callback := input(hi)
	callback.Callback = true
	callback.Parameters = map[string]any{"prompt": "told", "repo": "r"}
	if res, err := s.Resolve(t.Context(), "reviewer", callback); err != nil || !maps.Equal(res.Parameters, map[string]any{"prompt": "told", "repo": "r", "turns": 3.0}) {
		t.Errorf("a callback: %+v, %v", res.Parameters, err)
	}
	// What the config says counts at once.
	s.agents.Env = nil
	if _, err := s.Resolve(t.Context(), "reviewer", in); err == nil || !strings.Contains(err.Error(), "${env.API_KEY}") {
		t.Errorf("a variable that is not allowed any more: %v", err)
	}
}

func TestBookRefuses(t *testing.T) {
	s := shelve(t, map[string]string{
		"agents/worker.md":   "---\nparameters: {type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}\n---\n",
		"agents/broken.md":   "---\ndescripton: x\n---\n",
		"agents/secret.md":   "---\nmcp_servers: {v: {ref: vault}}\n---\n",
		"agents/lost.md":     "---\nmcp_servers: {filse: {}}\n---\n",
		"agents/own.md":      "---\nmcp_servers: {mine: {url: 'http://127.0.0.1/'}}\n---\n",
		"agents/keys.md":     "---\nmcp_servers: {files: {command: x, env: {T: '${env.OTHER}'}}}\n---\n",
		"agents/odd.md":      "---\nexecutor: bim\n---\n",
		"agents/settings.md": "---\nexecutor_config: {turns: '${params.prompt}'}\n---\n",
		"agents/scoped.md":   "---\n---\n${scope.nothing}\n",
	})
	for name, tt := range map[string]struct {
		parameters map[string]any
		code       string
		status     int
		words      string
	}{
		"worker":   {map[string]any{"n": "x", "m": 1}, api.CodeParameters, 400, "/n: want integer"},
		"workre":   {hi, "", 404, `did you mean "worker"?`},
		"broken":   {hi, blueprint.CodeBlueprint, 400, "broken.md:2:1"},
		"secret":   {hi, api.CodeServerRef, 400, `agent secret: mcp_servers.v: there is no server "vault" in the config; add it to servers, or write its entry here; or the owner`},
		"lost":     {hi, api.CodeServerRef, 400, `there is no server "filse" in the config; did you mean "files"?`},
		"own":      {hi, "", 403, "mcp_servers.mine: no rule gives"},
		"keys":     {hi, api.CodeServerKeys, 400, "${env.OTHER}"},
		"odd":      {hi, blueprint.CodeBlueprint, 400, "there is no executor \"bim\"; there are command, procedural, claude-code, codex, bin"},
		"settings": {hi, blueprint.CodeBlueprint, 400, "executor_config.turns: claude-code wants 3"},
		"scoped":   {hi, blueprint.CodePlaceholder, 400, "${scope.nothing}"},
	} {
		_, err := s.Resolve(t.Context(), name, input(tt.parameters))
		var e *api.Error
		if !errors.As(err, &e) || e.Code != tt.code || e.Status != tt.status || !strings.Contains(e.Message, tt.words) || strings.Contains(e.Message, "secret") && name != "secret" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
	_, err := s.Resolve(t.Context(), "worker", input(map[string]any{"n": "x", "m": 1}))
	var e *api.Error
	if !errors.As(err, &e) || len(e.ValidationErrors) != 2 || e.ValidationErrors[1].Path != "/n" || e.ValidationErrors[1].SchemaPath != "/properties/n/type" {
		t.Errorf("%+v", e)
	}
	otto := input(hi)
	otto.Owner = "otto"
	for _, name := range []string{"secret", "own"} {
		if _, err := s.Resolve(t.Context(), name, otto); err != nil {
			t.Errorf("%s of an owner that may: %v", name, err)
		}
	}
}

func TestBookLists(t *testing.T) {
	s := shelve(t, map[string]string{
		"agents/good.md":   "---\ndescription: Works\nexecutor: bin\nmcp_servers: {files: {}}\n---\n",
		"agents/broken.md": "---\ncolor: [x]\n---\n",
		"agents/hooked.md": "---\nhooks: {on_run_start: {command: ./nothere}, on_run_finish: {command: ./nothere}}\n---\n",
		"agents/odd.md":    "---\nexecutor: bim\nmcp_servers: {nowhere: {}}\nexecutor_config: {turns: 4}\n---\n",
	})
	if err := s.put(ada, "doc", `{"mcp_servers":{"memory":{}}}`); err != nil {
		t.Fatal(err)
	}
	check := func(problems map[string][]string) {
		t.Helper()
		list, err := s.List(t.Context(), ada)
		if err != nil || len(list) != 5 || !slices.IsSortedFunc(list, func(a, b api.Agent) int { return strings.Compare(a.Name, b.Name) }) {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, a := range list {
			want := problems[a.Name]
			if len(a.Problems) != len(want) {
				t.Errorf("%s: %q", a.Name, a.Problems)
				continue
			}
			for i, words := range want {
				if !strings.Contains(a.Problems[i], words) {
					t.Errorf("%s: %q, want %q", a.Name, a.Problems[i], words)
				}
			}
			if a.Name == "good" && (!a.Procedural || a.Description != "Works") || a.Name == "doc" && (a.Source != "" || a.Procedural) {
				t.Errorf("%+v", a)
			}
		}
	}
	odd, hooked := []string{"no executor", "no server"}, []string{"hooked.md:2:24: hooks.on_run_start[0].command: the program " + filepath.Join(s.dir, "agents", "nothere") + " can't be run"}
	check(map[string][]string{"broken": {"broken.md:2"}, "hooked": hooked, "odd": odd})
	// A server that the caller may not use is as one that there is not.
	if err := s.put(ada, "doc", `{"mcp_servers":{"vault":{}}}`); err != nil {
		t.Fatal(err)
	}
	check(map[string][]string{"broken": {"broken.md:2"}, "hooked": hooked, "odd": odd, "doc": {"agent doc:1:17: mcp_servers.vault: there is no server \"vault\""}})
	if err := s.put(ada, "doc", `{"mcp_servers":{"memory":{}}}`); err != nil {
		t.Fatal(err)
	}
	// A reload counts at once.
	s.servers = []string{"files"}
	s.agents.Executors = append(s.agents.Executors, config.Executor{Name: "bim", Type: config.ExecutorCommand, Command: "x"})
	check(map[string][]string{"broken": {"broken.md:2"}, "hooked": hooked, "odd": {"no server", "bim wants 3"}, "doc": {"no server \"memory\""}})
}

func TestDocumentsOfTheAPI(t *testing.T) {
	s := shelve(t, map[string]string{"agents/file.md": "---\n---\n", "capabilities/c.md": "---\nmcp_servers: {files: {}}\n---\nFrom c.\n"})
	ctx := t.Context()
	token := identity.Principal{Name: "ada", Role: api.RoleUser, Session: "ses_1", Run: "run_1"}
	const own = `{"mcp_servers":{"mine":{"command":"x"}},"hooks":{"on_run_start":{"command":"x"}}}`
	for _, tt := range []struct {
		what, words string
		status      int
		err         error
	}{
		{"a run's token", "changes no agents", 403, s.put(token, "a", `{}`)},
		{"a viewer", "role user", 403, s.put(identity.Principal{Name: "v"}, "a", `{}`)},
		{"a file's name", "the agent is a file", 409, s.put(otto, "file", `{}`)},
		{"a wrong name", "can't name an agent", 400, s.put(otto, "../x", `{}`)},
		{"a wrong body", "agent a:1:2: unknown key", 400, s.put(otto, "a", `{"nme":1}`)},
		{"programs of a user", "mcp_servers.mine, hooks.on_run_start: this needs the role operator", 403, s.put(ada, "a", own)},
		{"variables of a user", "${env.API_KEY}: this needs the role operator", 403, s.put(ada, "a", `{"system_prompt":"${env.API_KEY}"}`)},
		{"nothing to delete", "there is no agent", 404, s.DeleteAgent(ctx, ada, "a")},
		{"a file", "remove the file", 409, s.DeleteAgent(ctx, otto, "file")},
		{"deleted with a token", "changes no agents", 403, s.DeleteAgent(ctx, token, "a")},
		{"right", "", 0, s.put(ada, "a", `{"description":"one","capabilities":["c"]}`)},
		{"another's", "another principal's", 403, s.put(bob, "a", `{}`)},
		{"another's, deleted", "another principal's", 403, s.DeleteAgent(ctx, bob, "a")},
		{"changed", "", 0, s.put(ada, "a", `{"description":"two","capabilities":["c"]}`)},
		{"of an operator", "", 0, s.put(otto, "op", own)},
	} {
		var e *api.Error
		if tt.status == 0 && tt.err != nil || tt.status != 0 && (!errors.As(tt.err, &e) || e.Status != tt.status || !strings.Contains(e.Message, tt.words)) {
			t.Errorf("%s: %v", tt.what, tt.err)
		}
	}
	resolve := func(name string) (Resolved, error) { return s.Resolve(ctx, name, input(hi)) }
	if res, err := resolve("a"); err != nil || res.Made != "" || res.Description != "two" || len(res.Servers) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	// A capability that has got more than a user may have keeps the blueprint from starting.
	s.write("capabilities/c.md", "---\nmcp_servers: {memory: {command: x}}\n---\n")
	_, err := resolve("a")
	refusedWith(t, err, api.KindRefused, "mcp_servers.memory: this needs the role operator")
	list := must(s.List(ctx, ada))
	if i := slices.IndexFunc(list, func(a api.Agent) bool { return a.Name == "a" }); len(list[i].Problems) != 1 || !strings.Contains(list[i].Problems[0], "role operator") {
		t.Errorf("%+v", list[i])
	}
	// An operator may write it, and it stays its owner's, who can take it back.
	if err := s.put(otto, "a", `{"capabilities":["c"]}`); err != nil {
		t.Fatal(err)
	}
	if res, err := resolve("a"); err != nil || res.Made != access.MadeByOperator {
		t.Errorf("%+v, %v", res, err)
	}
	if err := s.put(ada, "a", `{"capabilities":["c"]}`); err == nil {
		t.Error("an operator's blueprint lets its owner have what it has")
	}
	// A file takes the name at once.
	s.write("agents/a.md", "---\ndescription: the file\n---\n")
	if res, err := resolve("a"); err != nil || res.Made != access.MadeByFile || res.Description != "the file" {
		t.Errorf("%+v, %v", res, err)
	}
	if err := s.DeleteAgent(ctx, ada, "a"); err != nil {
		t.Error(err)
	}
}

func TestOneAgent(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.agent(ada, "boss")
		r.running(boss)
		if a, err := r.Agent(t.Context(), ada, "again"); err != nil || a.Name != "again" || a.Source == "" {
			t.Errorf("%+v, %v", a, err)
		}
		if a, err := r.Agent(t.Context(), as(boss), "worker"); err != nil || a.Name != "worker" || a.Source != "" {
			t.Errorf("%+v, %v", a, err)
		}
		for _, tt := range []struct {
			who   identity.Principal
			name  string
			words string
		}{{ada, "wroker", `"wroker" (did you mean "worker"?)`}, {as(boss), "again", `there is no agent "again"`}} {
			_, err := r.Agent(t.Context(), tt.who, tt.name)
			var e *api.Error
			if !errors.As(err, &e) || e.Status != http.StatusNotFound || !strings.Contains(e.Message, tt.words) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
	})
}

// TestCallbackOfABlueprint: the run that tells a callback has what the session was started
// with, and the schema says nothing about the prompt.
func TestCallbackOfABlueprint(t *testing.T) {
	s := shelve(t, map[string]string{
		"agents/boss/agent.yaml": "system_prompt: \"Look at ${params.repo}\"\nenv: {K: \"${env.API_KEY}\"}\nagents: [worker]\nparameters: {type: object, properties: {repo: {type: string}}, required: [repo], additionalProperties: false}\n",
		"agents/worker.md":       "---\n---\n",
	})
	var learned []string
	r := &rig{t: t, dir: t.TempDir(), book: &book{}, o: Options{Blueprints: s.Book, Secret: func(values []string) { learned = append(learned, values...) }}}
	r.open()
	defer func() { r.close() }()
	me := runner.Description{ID: "r1", Instance: "1", Executors: []string{"claude-code"}}
	claim := func() runner.Claim {
		c := r.claim(me)
		r.report(c, runner.Report{Running: true})
		return c
	}
	boss := r.start(ada, api.NewRun{Agent: "boss", Parameters: map[string]any{"repo": "tine"}})
	r.again()
	if !slices.Equal(learned, []string{"gateway-key-1"}) {
		t.Errorf("after a restart the coordinator tells of %q", learned)
	}
	first := claim()
	if first.World.Made != access.MadeByFile || first.World.Owner != "ada" {
		t.Errorf("world %+v", first.World)
	}
	r.start(as(boss), api.NewRun{Agent: "worker", Prompt: "part", Mode: api.ModeAsyncCallback})
	r.report(claim(), done("it is good"))
	r.report(first, done("waiting"))
	told := claim()
	filled, err := told.Blueprint.Fill(nil)
	if err != nil || filled.SystemPrompt != "Look at tine" || told.Job.Parameters["repo"] != "tine" || !strings.Contains(told.Job.Parameters["prompt"].(string), "it is good") {
		t.Errorf("prompt %q, parameters %v, %v", filled.SystemPrompt, told.Job.Parameters, err)
	}
}
