//go:build unix

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// startOn runs a gateway, whose servers may be in an engine, with a folder of
// templates beside its config, and returns its id.
func startOn(t testing.TB, e *engine, config string, templates ...func(dir string)) (*gateway, string) {
	t.Helper()
	var id string
	if e != nil {
		e.sweepAfter(t, &id)
	}
	g := newGateway(t, patientLists+"template_roots: [./templates]\nservers:\n"+config+"  rollout: {builtin: rollout}\n")
	dir := filepath.Join(g.dir, "templates")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, template := range templates {
		template(dir)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	id = gatewayID(t, g)
	return g, id
}

// What initialize_session answers, as far as tests look at it.
type rolloutSession struct {
	ID       string           `json:"session_id"`
	RK       string           `json:"rk_session_id"`
	Token    string           `json:"token"`
	Backends []rolloutBackend `json:"initialized_backends"`
}

type rolloutBackend struct {
	Name      string            `json:"backend_name_ref"`
	Instances []rolloutInstance `json:"instances"`
}

type rolloutInstance struct {
	ID        string          `json:"instance_id"`
	Backend   string          `json:"backend_name_ref"`
	Mode      string          `json:"orchestration_mode"`
	Transport string          `json:"mcp_transport"`
	URL       string          `json:"mcp_endpoint_url"`
	Details   json.RawMessage `json:"internal_instance_details"`
}

func (s *rolloutSession) instances(backend string) []rolloutInstance {
	for _, b := range s.Backends {
		if b.Name == backend {
			return b.Instances
		}
	}
	return nil
}

// cleaned answers cleanup_session.
type cleaned struct {
	Status string `json:"status"`
	RK     string `json:"rk_session_id"`
}

const (
	statusCleaned = "cleaned"
	statusGone    = "custom_session_data_not_found_or_already_cleaned"
)

// A trainer drives rollouts: it calls the control tools over one connection.
type trainer struct{ s *session }

func newTrainer(t testing.TB, g *gateway) trainer {
	t.Helper()
	return trainer{mustOpen(t, g.url+"/mcp/rollout")}
}

// do calls a control tool and reads its answer, the JSON in its first content
// item.
func (r trainer) do(ctx context.Context, tool string, args, out any) error {
	res, err := r.s.call(ctx, tool, args)
	if err != nil {
		return fmt.Errorf("%s: %w", tool, err)
	}
	if res.IsError {
		failure := &toolFailure{text: res.text()}
		if e := res.Meta["tine/error"]; e != nil {
			failure.api = new(api.Error)
			if err := decodeInto(e, failure.api); err != nil {
				return err
			}
		}
		return fmt.Errorf("%s: %w", tool, failure)
	}
	if out == nil {
		return nil
	}
	if len(res.Content) == 0 {
		return fmt.Errorf("%s: no content", tool)
	}
	return decodeInto([]byte(res.Content[0].Text), out)
}

func (r trainer) must(t testing.TB, tool string, args, out any) {
	t.Helper()
	if err := r.do(t.Context(), tool, args, out); err != nil {
		t.Fatal(err)
	}
}

// init opens a session with backends, each an object of initialize_session.
func (r trainer) init(ctx context.Context, backends ...object) (*rolloutSession, error) {
	s := new(rolloutSession)
	return s, r.do(ctx, "initialize_session", object{"backends": backends}, s)
}

func (r trainer) mustInit(t testing.TB, backends ...object) *rolloutSession {
	t.Helper()
	s, err := r.init(t.Context(), backends...)
	if err != nil {
		t.Fatal(err)
	}
	if s.ID == "" || s.ID != s.RK || len(s.Backends) != len(backends) {
		t.Fatalf("initialize_session %v answers %+v", backends, s)
	}
	return s
}

// use calls a tool of a backend in a session and returns its text. Instance is an
// id, or nil for the first.
func (r trainer) use(ctx context.Context, session, backend string, instance any, tool string, args any) (string, error) {
	var res toolResult
	in := object{"rk_session_id": session, "backend_name_ref": backend, "tool_name": tool, "tool_args": args}
	if instance != nil {
		in["instance_id"] = instance
	}
	err := r.do(ctx, "call_backend_tool", in, &res)
	return res.text(), err
}

func (r trainer) mustUse(t testing.TB, session, backend string, instance any, tool string, args any) string {
	t.Helper()
	text, err := r.use(t.Context(), session, backend, instance, tool, args)
	if err != nil {
		t.Fatalf("in %s, %s %v: %v", session, backend, instance, err)
	}
	return text
}

// mustHold holds that a backend that is a stateserver has these values and no
// others.
func (r trainer) mustHold(t testing.TB, session, backend string, instance any, want map[string]string) {
	t.Helper()
	got, err := r.values(t.Context(), session, backend, instance)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("%s %v of %s has %v, want %v", backend, instance, session, got, want)
	}
}

func (r trainer) values(ctx context.Context, session, backend string, instance any) (map[string]string, error) {
	text, err := r.use(ctx, session, backend, instance, "all", object{})
	if err != nil {
		return nil, err
	}
	got := map[string]string{}
	return got, decodeInto([]byte(text), &got)
}

// mustClean closes a session that was open.
func (r trainer) mustClean(t testing.TB, session string) {
	t.Helper()
	var got cleaned
	r.must(t, "cleanup_session", object{"rk_session_id": session}, &got)
	if got.Status != statusCleaned || got.RK != session {
		t.Errorf("cleanup_session of %s answers %+v", session, got)
	}
}

// listed are the sessions that were opened and not closed.
func (r trainer) listed(ctx context.Context) ([]string, error) {
	var list api.SessionList
	if err := r.do(ctx, "list_sessions", object{"limit": 1000}, &list); err != nil {
		return nil, err
	}
	var ids []string
	for _, s := range list.Sessions {
		if s.Kind == api.SessionOpened {
			ids = append(ids, s.ID)
		}
	}
	return ids, nil
}

func mustListed(t testing.TB, r trainer) []string {
	t.Helper()
	ids, err := r.listed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// nothingOpen holds that no session is listed any more.
func (r trainer) nothingOpen(t testing.TB) {
	t.Helper()
	if ids := mustListed(t, r); len(ids) > 0 {
		t.Errorf("sessions %v are listed", ids)
	}
}

// cleanListed closes every session that is listed, also those that nobody was
// told of.
func (r trainer) cleanListed(t testing.TB) {
	t.Helper()
	for _, id := range mustListed(t, r) {
		r.must(t, "cleanup_session", object{"rk_session_id": id}, nil)
	}
}

// writeLog makes a folder that a stateserver begins with.
func writeLog(t testing.TB, dir string, values map[string]string) {
	t.Helper()
	var log []byte
	for k, v := range values {
		line, err := json.Marshal(object{"key": k, "value": v})
		if err != nil {
			t.Fatal(err)
		}
		log = append(append(log, line...), '\n')
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log"), log, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A rewardKit is the Python client of testdata/clients/rewardkit.py. One that
// works for a session sends its id as mcp-session-id.
type rewardKit struct {
	t       testing.TB
	ask     func(line object) rewardKitAnswer
	session string
}

type rewardKitAnswer struct {
	Tools      []string
	IsError    bool
	Text       string
	Meta       map[string]json.RawMessage
	Data       json.RawMessage
	Structured json.RawMessage
	Failed     string
}

// startRewardKit runs the client until the test ends.
func startRewardKit(t testing.TB, era, url string) *rewardKit {
	t.Helper()
	program := need(t, python)[0]
	script, err := filepath.Abs("testdata/clients/rewardkit.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, script, era, url)
	cmd.Env = toolEnv(t)
	cmd.Dir = t.TempDir()
	var complaints strings.Builder
	cmd.Stderr = &complaints
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
	t.Cleanup(func() {
		in.Close() // it leaves by itself
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("rewardkit.py: %v\n%s", err, tail(complaints.String(), 4<<10))
		}
	})
	lines := bufio.NewReader(out)
	return &rewardKit{t: t, ask: func(line object) (a rewardKitAnswer) {
		t.Helper()
		raw, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(append(raw, '\n')); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		answer, err := lines.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(answer, &a)
		}
		if err != nil {
			t.Fatalf("%s: %v in %q", raw, err, answer)
		}
		return a
	}}
}

// worker is the same client, who names the session in the header alone.
func (k *rewardKit) worker(session string) *rewardKit {
	return &rewardKit{k.t, k.ask, session}
}

// call makes a call that has to work, and reads the JSON in its first content
// item, which has to be the structured content too.
func (k *rewardKit) call(tool string, args object, out any) {
	k.t.Helper()
	a := k.ask(object{"tool": tool, "args": args, "session": k.session})
	if a.Failed != "" || a.IsError {
		k.t.Fatalf("%s %v: %s%s", tool, args, a.Failed, a.Text)
	}
	if !sameJSON(k.t, a.Data, a.Structured) {
		k.t.Errorf("%s: the text is %s, the structured content %s", tool, a.Data, a.Structured)
	}
	if out != nil {
		if err := decodeInto(a.Data, out); err != nil {
			k.t.Fatal(err)
		}
	}
}

// use calls a tool of a backend in the worker's session.
func (k *rewardKit) use(backend string, instance any, tool string, args object) string {
	k.t.Helper()
	in := object{"backend_name_ref": backend, "tool_name": tool, "tool_args": args}
	if instance != nil {
		in["instance_id"] = instance
	}
	var res toolResult
	k.call("call_backend_tool", in, &res)
	if res.IsError {
		k.t.Fatalf("%s %s: %s", backend, tool, res.text())
	}
	return res.text()
}

// refused makes a call that has to fail, and returns what it says of itself.
func (k *rewardKit) refused(tool string, args object) *api.Error {
	k.t.Helper()
	a := k.ask(object{"tool": tool, "args": args, "session": k.session})
	e := new(api.Error)
	if a.Failed != "" || !a.IsError || a.Meta["tine/error"] == nil {
		k.t.Fatalf("%s %v answers %+v, want an error of Tine's", tool, args, a)
	}
	if err := decodeInto(a.Meta["tine/error"], e); err != nil {
		k.t.Fatal(err)
	}
	return e
}

func sameJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatalf("%v in %q", err, a)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return reflect.DeepEqual(x, y)
}
