//go:build unix

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// reporters prepares a gateway whose agent "reporter" uses the executor API, and "echo" prints
// its URL.
func reporters(t *testing.T) *gateway {
	dir, err := filepath.Abs("testdata/agents")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "")
	g.writeConfig(t, fmt.Sprintf(`%sservers:
  orchestrator: {builtin: orchestrator}
agents:
  tags: [here]
  executors:
    reporter: {type: command, command: python3, args: [-B, %q]}
    keeper: {type: command, command: sh, args: [-c, 'cat >/dev/null; echo "$AGENT_ORCHESTRATOR_API_URL" >%s; until [ -e %s ]; do sleep 0.05; done']}
    echo: {type: command, command: sh, args: [-c, 'cat >/dev/null; echo "at $AGENT_ORCHESTRATOR_API_URL"']}
`, sessionAuth, filepath.Join(dir, "reporter.py"), filepath.Join(g.dir, "url"), filepath.Join(g.dir, "go")))
	for name, text := range map[string]string{
		"keeper": "executor: keeper\n",
		"echo":   "executor: echo\ntags: [small, plain]\n",
		"reporter": `executor: reporter
executor_config: {persistent: true}
mcp_servers: {orchestrator: {}}
agents: [echo]
parameters:
  type: object
  properties: {prompt: {type: string}, other: {type: string}}
`,
	} {
		path := filepath.Join(g.dir, "agents", name+".yaml")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// TestAgentExecutorAPI has a program tell of its work by the executor API, in two turns and
// once more after it was ended, and try what the token in its URL must not do.
func TestAgentExecutorAPI(t *testing.T) {
	t.Parallel()
	g := reporters(t)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.clientAs(t, "token-of-ada-0123456789")
	other := openSession(t, c, api.NewSession{})
	first := startRun(t, c, api.NewRun{Agent: "reporter", Parameters: api.Parameters{"prompt": "one", "other": other.ID}})
	r := ended(t, c, first.ID, api.RunCompleted)
	got := resultOf[struct {
		As       string `json:"resumed_as"`
		Child    string
		ChildRun string `json:"child_run"`
		Agents   []string
		Tagged   []string
		Sessions int
		None     string
		Refused  map[string]int
		Hinted   []int
	}](t, r)
	// What the child prints is masked where it is a token.
	if r.Result.Text != "told one" || got.Child != "at "+g.url+"/executor/****" || got.ChildRun != api.RunCompleted || got.Sessions != 2 || got.None != "not_existent" ||
		!slices.Equal(got.Agents, []string{"echo"}) || !slices.Equal(got.Tagged, got.Agents) ||
		!slices.Equal(got.Hinted, []int{1, 1, 0, -1}) {
		t.Errorf("it told %q, %+v", r.Result.Text, got)
	}
	want := map[string]int{
		"bind of another session": 403, "event of another session": 403, "another session": 404, "the end of another session": 404,
		"the end of its own session": 403, "a parent that it is not": 403, "a header that names another session": 403,
		"an agent without the tag": 404, "an agent that it may not start": 403, "demands that can't be read": 400,
		"demands with something behind": 400, "an event of another shape": 400,
		"an event that there is not": 400, "another credential beside the URL's": 400,
	}
	if !reflect.DeepEqual(got.Refused, want) {
		t.Errorf("it was answered %v, want %v", got.Refused, want)
	}
	order := []string{"pending", "claimed", "running", "bound", "tool", "tool", "text", "completed"}
	if events := runEvents(t, c, first.ID); !slices.Equal(events, order) {
		t.Errorf("its events are %v, want %v", events, order)
	}
	again := startRun(t, c, api.NewRun{Session: first.Session, Prompt: "two"})
	if r := ended(t, c, again.ID, api.RunCompleted); r.Result.Text != "told two" {
		t.Errorf("its second turn told %+v", r.Result)
	}
	order = slices.DeleteFunc(order, func(e string) bool { return e == "bound" })
	if events := runEvents(t, c, again.ID); !slices.Equal(events, order) {
		t.Errorf("the events of its second turn are %v, want %v", events, order)
	}
	// Its token is that of its first run, and its calls are those of the run that it does.
	for run, want := range map[string]int{first.ID: 5, again.ID: 1} {
		if calls := g.journal(t, client.CallQuery{Run: run}); len(calls) != want {
			t.Errorf("run %s has the calls %+v, want %d", run, calls, want)
		}
	}
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.clientAs(t, "token-of-ada-0123456789")
	third := startRun(t, c, api.NewRun{Session: first.Session, Prompt: "three"})
	r = ended(t, c, third.ID, api.RunCompleted)
	if as := resultOf[struct {
		As string `json:"resumed_as"`
	}](t, r).As; r.Result.Text != "told three" || as == "" {
		t.Errorf("resumed it told %q as %q", r.Result.Text, as)
	}
	if s, err := c.AgentSession(t.Context(), first.Session); err != nil || s.ExecutorSession != "conversation-resume" {
		t.Errorf("its session is %+v, %v", s, err)
	}
	if err := c.CloseSession(t.Context(), other.ID); err != nil {
		t.Error(err)
	}
}

// TestAgentExecutorToken uses URLs of the executor API that are no run's, and one before and
// after its run has ended.
func TestAgentExecutorToken(t *testing.T) {
	t.Parallel()
	g := reporters(t)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.clientAs(t, "token-of-ada-0123456789")
	s := openSession(t, c, api.NewSession{})
	get := func(what, url string, want int) {
		t.Helper()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != want || strings.Contains(string(body), "tine_ses_") {
			t.Errorf("%s: %d %s, %v; want %d", what, resp.StatusCode, body, err, want)
		}
	}
	at := g.url + "/executor/"
	get("no token", at, http.StatusUnauthorized)
	get("a token of no one", at+"tine_ses_0123456789/sessions", http.StatusUnauthorized)
	get("a user's token", at+"token-of-ada-0123456789/sessions", http.StatusForbidden)
	get("a session's token", at+s.Token+"/sessions", http.StatusForbidden)

	run := startRun(t, c, api.NewRun{Agent: "keeper", Prompt: "go"})
	own := ""
	err := eventually(func() error {
		text, err := os.ReadFile(filepath.Join(g.dir, "url"))
		if own = strings.TrimSpace(string(text)); err == nil && own == "" {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	get("the token of a run", own+"/sessions", http.StatusOK)
	get("its document", own+"/openapi.json", http.StatusOK)
	get("what is not there", own+"/nothing", http.StatusNotFound)
	if err := os.WriteFile(filepath.Join(g.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ended(t, c, run.ID, api.RunCompleted)
	get("the token of a run that has ended", own+"/sessions", http.StatusUnauthorized)
	log, err := os.ReadFile(g.logPath())
	if token := own[strings.LastIndexByte(own, '/')+1:]; err != nil || len(token) < 20 || strings.Contains(string(log), token) {
		t.Errorf("the log has the token %q, or %v", token, err)
	}
}
