//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// openEnvs are the versions of OpenEnv, by where their package is.
var openEnvs = map[string]string{openEnvNew: "", openEnvOld: "openenv/core-0.3.0"}

const openEnvNew, openEnvOld = "openenv-0.10", "openenv-core-0.3"

// openEnvNewest are the versions for tests that begin several clients, which take seconds
// each to load.
var openEnvNewest = torture.Or([]string{openEnvNew}, []string{openEnvNew, openEnvOld})

// openEnvClient runs a Python program with a version of OpenEnv.
func openEnvClient(t testing.TB, version string, args ...string) *exec.Cmd {
	t.Helper()
	program := need(t, openEnvPython, openEnvCore)[0]
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = toolEnv(t)
	if at := openEnvs[version]; at != "" {
		cmd.Env = append(cmd.Env, "PYTHONPATH="+filepath.Join(toolsDir(), at))
	}
	cmd.Dir = t.TempDir()
	return cmd
}

// yamlGame is the config of an environment whose world is a program's memory.
func yamlGame(t testing.TB) string {
	t.Helper()
	return "servers:\n" + yamlServer("game", need(t, openEnvPython)[0], []string{openEnvFile(t, "game.py")}) + "environments:\n  game: {servers: [game]}\n"
}

func openEnvFile(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", "openenv", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// findings are the lines that clients.py tells, as one object.
func findings(t testing.TB, out []byte) object {
	t.Helper()
	all := object{}
	for line := range strings.Lines(string(out)) {
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber() // a float would lose digits
		one := object{}
		if err := dec.Decode(&one); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		for k, v := range one {
			if k == "state" {
				k = fmt.Sprintf("state%d", len(all))
			}
			all[k] = v
		}
	}
	return all
}

// asJSON is JSON of a value, to be compared.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOpenEnvClients has the clients of both versions do all that they can, unchanged. The
// token is the password of the URL: those of 0.3 take no headers.
func TestOpenEnvClients(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "auth: {tokens: [{name: ada, token: ada-ada-ada-ada-ada}]}\n"+yamlGame(t))
	t.Run("all", func(t *testing.T) { openEnvClients(t, g) })
	nothingLeft(t, g)
}

func openEnvClients(t *testing.T, g *gateway) {
	url := strings.Replace(g.url, "://", "://any:ada-ada-ada-ada-ada@", 1) + "/openenv/game"
	for version := range openEnvs {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cmd := openEnvClient(t, version, openEnvFile(t, "clients.py"), "all", url)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, tail(stderr.String(), 8<<10))
			}
			got := findings(t, out)
			tools := `["add","record","say","fail","pid"]`
			for key, want := range map[string]string{
				"reward": "null", "done": "false", "tools": tools, "isolated": "[5,1,10]",
				"said": `"a \u003cb\u003e \u0026 ä"`, "still": "11", "fresh": "1", "other": "2",
				"mcp_tools": tools, "called": "[2,4]", "typed": `"CallToolObservation"`, "data": "5", "error": `"execution_error"`, "listed": "5",
			} {
				if asJSON(t, got[key]) != want {
					t.Errorf("%s is %s, want %s", key, asJSON(t, got[key]), want)
				}
			}
			begun := got["begun"].(map[string]any)
			if begun["environment"] != "game" || begun["episode_id"] != "mine" || !strings.HasPrefix(fmt.Sprint(begun["session"]), "ses_") {
				t.Errorf("a reset answers %v", begun)
			}
			add := got["add"].(map[string]any)
			if schema := add["input_schema"].(map[string]any); add["description"] != "Adds to a number that the server remembers." || schema["type"] != "object" {
				t.Errorf("a tool is %v", add)
			}
			record := got["record"].(map[string]any)
			want := map[string]any{"total": json.Number("10"), "big": json.Number("1152921504606846977")}
			if !reflect.DeepEqual(record["data"], want) || !reflect.DeepEqual(record["structured_content"], want) || record["is_error"] != false {
				t.Errorf("a structured result is %v", record)
			}
			for i, kind := range []string{"execution_error", "tool_not_found"} {
				seen := got["errors"].([]any)[i].(map[string]any)
				if e := seen["error"].(map[string]any); seen["result"] != nil || e["error_type"] != kind {
					t.Errorf("the observation of %s is %v", kind, seen)
				}
			}
			for i, word := range []string{"boom", "invented"} {
				if e := fmt.Sprint(got["mcp_errors"].([]any)[i]); !strings.Contains(e, word) {
					t.Errorf("MCPToolClient says %q, want %q in it", e, word)
				}
			}
			if wrong := fmt.Sprint(got["wrong"]); !strings.Contains(wrong, "code: VALIDATION_ERROR") {
				t.Errorf("an action of another type: %s", wrong)
			}
		})
	}
	for _, version := range openEnvNewest {
		t.Run("validate "+version, func(t *testing.T) {
			t.Parallel()
			cmd := openEnvClient(t, version, "-m", "openenv.cli", "validate", "--url", url, "--json")
			if version == openEnvOld {
				cmd.Args = cmd.Args[:len(cmd.Args)-1] // it prints JSON anyway
			}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), `"failed_criteria": []`) {
				t.Errorf("openenv validate: %v\n%s", err, out)
			}
		})
	}
}

// TestOpenEnvDeaths kills the server of an episode between two steps: its client is told
// so, by an error and not by an observation. Then it kills the client in the middle of
// other episodes: their sessions and programs are gone.
func TestOpenEnvDeaths(t *testing.T) {
	t.Parallel()
	for _, version := range openEnvNewest {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, yamlGame(t))
			cmd := openEnvClient(t, version, openEnvFile(t, "clients.py"), "end", g.url+"/openenv/game")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			next := func() (said struct {
				PID         int
				Lost, After string
				Held        []int
			}) {
				t.Helper()
				line, err := lines.ReadBytes('\n')
				if err == nil {
					err = json.Unmarshal(line, &said)
				}
				if err != nil {
					t.Fatalf("%v in %q", err, line)
				}
				return said
			}
			pid := next().PID
			if pid <= 1 {
				t.Fatalf("the server is process %d", pid)
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(in, "\n"); err != nil {
				t.Fatal(err)
			}
			said := next()
			if !strings.Contains(said.Lost, "code: SESSION_ERROR") || !strings.Contains(said.Lost, `server "game"`) {
				t.Errorf("the client is told %q", said.Lost)
			}
			if !strings.Contains(said.After, "code: VALIDATION_ERROR") || !strings.Contains(said.After, "send a reset") {
				t.Errorf("a step on a new connection: %q", said.After)
			}
			if held := next().Held; len(held) != 2 || held[0] == held[1] {
				t.Errorf("two episodes have the servers %v", held)
			}
			open, err := openSessions(t.Context(), g.client(t), client.SessionQuery{Labels: map[string]string{"openenv": "game"}})
			if err != nil || len(open) != 2 {
				t.Errorf("the client holds %v, %v", open, err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // killed
			nothingLeft(t, g)
		})
	}
}

// TestOpenEnvDocs runs docs/openenv.md as it stands there.
func TestOpenEnvDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join("..", "docs", "openenv.md"))
	if err != nil {
		t.Fatal(err)
	}
	block := func(language string, n int) string {
		all := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(data, -1)
		if len(all) <= n {
			t.Fatalf("the page has %d blocks of %s", len(all), language)
		}
		return string(all[n][1])
	}
	python := need(t, openEnvPython)[0]
	g := newGateway(t, strings.Replace(block("yaml", 0), "command: python3", "command: "+python, 1))
	if err := os.WriteFile(filepath.Join(g.dir, "grader.py"), []byte(block("python", 0)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	for _, version := range openEnvNewest {
		episode := filepath.Join(t.TempDir(), "episode.py")
		if err := os.WriteFile(episode, []byte(block("python", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := openEnvClient(t, version, episode)
		cmd.Env = append(cmd.Env, "TINE_URL="+g.url)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", version, err, out)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		if len(lines) != 3 || !strings.Contains(lines[0], "'write_file'") || strings.Contains(lines[0], "score") ||
			!slices.Equal(lines[1:], []string{"41 0.0 False", "42 1.0 True"}) {
			t.Errorf("%s prints\n%s", version, out)
		}
	}
	// The rewards are in the trajectories, each at its call.
	c := g.client(t)
	n := 0
	for s, err := range c.AllSessions(t.Context(), client.SessionQuery{Labels: map[string]string{"openenv": "answer", "openenv_episode": "first"}, Closed: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		calls := map[string]string{}
		var rewards []string
		for _, step := range rows(t, c, s.ID) {
			switch step.Type {
			case "call":
				calls[step.ID] = step.Name
				var meta map[string]string
				if _ = json.Unmarshal(step.Meta, &meta); step.Name == "score" && calls[meta["openenv/reward"]] != "write_file" {
					t.Errorf("a call of the reward tool has the meta %s", step.Meta)
				}
			case api.StepAnnotation:
				rewards = append(rewards, fmt.Sprintf("%s %v", calls[step.Call], *step.Reward))
			}
		}
		if !slices.Equal(rewards, []string{"write_file 0", "write_file 1"}) {
			t.Errorf("the rewards of session %s are %q", s.ID, rewards)
		}
	}
	if n != len(openEnvNewest) {
		t.Errorf("%d sessions are in the journal, want %d", n, len(openEnvNewest))
	}
	nothingLeft(t, g)
}

// rpcPost makes a request of JSON-RPC without a handshake, and returns its result.
func rpcPost(t testing.TB, url, body string) object {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Result object
		Error  any
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || out.Error != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v, %v", body, resp.Status, err, out.Error)
	}
	return out.Result
}

// TestOpenEnvReload holds that an episode goes on with the environment it began with, and
// that the next has the new one. A kill of the gateway ends episodes, and not their forks.
func TestOpenEnvReload(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers: {mem: {builtin: memory}, sql: {builtin: sqlite}}\nenvironments: {one: {servers: [mem]}}\n")
	c := g.client(t)
	begin := func() string {
		t.Helper()
		out := rpcPost(t, g.url+"/openenv/one/mcp", `{"jsonrpc":"2.0","id":1,"method":"openenv/session/create"}`)
		return out["session_id"].(string)
	}
	tools := func(id string) string {
		t.Helper()
		out := rpcPost(t, g.url+"/openenv/one/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"session_id":%q}}`, id))
		return asJSON(t, out["tools"].([]any)[0].(map[string]any)["name"])
	}
	before := begin()
	g.writeConfig(t, "servers: {mem: {builtin: memory}, sql: {builtin: sqlite}}\nenvironments: {one: {servers: [sql]}}\n")
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := begin()
	if was, is := tools(before), tools(after); was == is || !strings.Contains(was, "entit") {
		t.Errorf("the first tools are %s before the reload and %s after it", was, is)
	}
	open, err := openSessions(t.Context(), c, client.SessionQuery{})
	if err != nil || len(open) != 2 {
		t.Fatalf("open are %v, %v", open, err)
	}
	var branch api.OpenedSession
	for id := range open {
		branch = fork(t, c, id, 1)[0]
		break
	}
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	left, err := openSessions(t.Context(), c, client.SessionQuery{})
	if _, stays := left[branch.ID]; err != nil || len(left) != 1 || !stays {
		t.Errorf("after a kill of the gateway open are %v, %v, want the fork of an episode", left, err)
	}
	was, err := c.Session(t.Context(), branch.Parent)
	if err != nil || was.Closed.IsZero() || was.Reason != "the gateway that held it has ended" {
		t.Errorf("the episode's session is %+v, %v", was, err)
	}
	if len(rows(t, c, branch.Parent)) == 0 {
		t.Error("its trajectory is gone")
	}
	if err := c.CloseSession(t.Context(), branch.ID); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
