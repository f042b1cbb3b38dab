package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

func TestCallSaves(t *testing.T) {
	url := world().start(t)
	dir := t.TempDir()
	out := filepath.Join(dir, "pic.png")
	stdout, stderr, code := run(t, url, "call", "files__draw", "--out", out)
	if code != 0 || !strings.HasPrefix(stdout, "drawn\n") || strings.Contains(stdout, "[image") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	for name, want := range map[string]string{"pic.png": "hello", "pic-2.png": "hi"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if !strings.Contains(stderr, name) {
			t.Errorf("%q does not name %s", stderr, name)
		}
	}
	text := filepath.Join(dir, "text")
	stdout, _, code = run(t, url, "call", "files__strict", "-o", text)
	got, err := os.ReadFile(text)
	if code != 0 || err != nil || stdout != "" || !strings.Contains(string(got), "12345678901234567890") {
		t.Errorf("exit %d, printed %q, saved %q, %v", code, stdout, got, err)
	}
	// An error is not what was asked to be saved.
	bad := filepath.Join(dir, "bad")
	if _, _, code = run(t, url, "call", "time__get_current_time", "-o", bad); code != exitFailed {
		t.Errorf("exit %d", code)
	}
	if _, err := os.Stat(bad); err == nil {
		t.Error("saved an error")
	}
	if _, stderr, code = run(t, url, "call", "files__draw", "-o", filepath.Join(dir, "no", "folder")); code != exitFailed || !strings.Contains(stderr, "save the image") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestCallFromStdin(t *testing.T) {
	url := world().start(t)
	for _, tt := range []struct {
		stdin string
		args  []string
		want  string
		code  int
	}{
		{`{"b": 12345678901234567890, "a": "<"}`, []string{"--args", "-"}, `{"b":12345678901234567890,"a":"<"}`, 0},
		{`{"b": 1}`, []string{"--args", "-", "limit=2"}, `{"b":1,"limit":2}`, 0},
		{`text`, []string{"path=@-"}, `{"path":"text"}`, 0},
		{``, []string{"--args", "-"}, "", 2},
		{`{}`, []string{"--args", "-", "path=@-"}, "", 2},
	} {
		tc := newTestCLI(t, append([]string{"call", "files__read_file"}, tt.args...)...)
		tc.env["TINE_URL"] = url
		tc.stdin = strings.NewReader(tt.stdin)
		code := tc.cli.run(t.Context())
		if code != tt.code || strings.TrimSpace(tc.out.String()) != tt.want {
			t.Errorf("%q %q: exit %d, %q, %q", tt.stdin, tt.args, code, tc.out.String(), tc.err.String())
		}
	}
}

// A call asks for no more than it needs: nothing for raw arguments, one server's
// tools where the name tells it.
func TestCallAsksLittle(t *testing.T) {
	var (
		mu    sync.Mutex
		asked []string
	)
	f := world()
	f.seen = func(r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.RequestURI())
		mu.Unlock()
	}
	url := f.start(t)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"files__draw"}, []string{"/v1/call"}},
		{[]string{"files__draw", "n:=1"}, []string{"/v1/call"}},
		{[]string{"files__draw", "n=1"}, []string{"/v1/servers", "/v1/tools?server=files", "/v1/call"}},
		{[]string{"other", "n=1"}, []string{"/v1/servers", "/v1/tools"}},
	} {
		asked = nil
		run(t, url, append([]string{"call"}, tt.args...)...)
		if !slices.Equal(asked, tt.want) {
			t.Errorf("%q asked %q, want %q", tt.args, asked, tt.want)
		}
	}
}

// A call waits for the server of its tool to start, and says so: a log hears it in
// one line.
func TestCallWaitsForItsServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		fail string // why the server is not there; empty where it comes
		code int
		said []string
	}{
		{"comes", []string{"call", "files__read_file", "path=/x"}, "", 0, []string{`waiting for server "files"`}},
		{"never", []string{"call", "files__read_file", "path=/x"}, "did not start within 1m0s", exitFailed, []string{`waiting for server "files"`, `server "files"`, "did not start within 1m0s (timeout)"}},
		{"tools", []string{"tools", "files"}, "", 0, []string{`waiting for server "files"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := world()
			said := make(chan struct{})
			have := f.tools
			f.tools = func(server string) (any, *api.Error) {
				<-said // a command says that it waits
				if tt.fail != "" {
					return api.ToolList{Missing: []api.Missing{{Server: server, Reason: tt.fail, Kind: api.KindTimeout}}}, nil
				}
				return have(server)
			}
			tc := newTestCLI(t, tt.args...)
			tc.env["TINE_URL"] = f.start(t)
			passed := make(chan time.Time)
			close(passed)
			tc.after = func(time.Duration) <-chan time.Time { return passed }
			tc.stderr = &firstWrite{w: &tc.err, done: said}
			if code := tc.cli.run(t.Context()); code != tt.code {
				t.Errorf("exit %d, %q, %q", code, tc.out.String(), tc.err.String())
			}
			for _, want := range tt.said {
				if !strings.Contains(tc.err.String(), want) {
					t.Errorf("said %q, want %q in it", tc.err.String(), want)
				}
			}
			if n := strings.Count(tc.err.String(), "waiting"); n != 1 {
				t.Errorf("said %d times that it waits: %q", n, tc.err.String())
			}
		})
	}
}

// firstWrite closes a channel when something was written.
type firstWrite struct {
	w    io.Writer
	what string // that is waited for; empty for anything
	once sync.Once
	done chan struct{}
}

func (f *firstWrite) Write(b []byte) (int, error) {
	if strings.Contains(string(b), f.what) {
		defer f.once.Do(func() { close(f.done) })
	}
	return f.w.Write(b)
}

// What --timeout bounds is the whole of a call, also until its server has started.
func TestCallTimeoutBoundsTheStart(t *testing.T) {
	f := world()
	over := make(chan struct{})
	f.tools = func(string) (any, *api.Error) {
		<-over
		return api.ToolList{}, nil
	}
	url := f.start(t)
	t.Cleanup(func() { close(over) }) // before the gateway is closed
	// The time is for all that the command asks, and this is not the first of it.
	_, stderr, code := run(t, url, "call", "files__read_file", "path=/x", "--timeout", "1s")
	if code != exitFailed || !strings.Contains(stderr, `server "files" has not answered yet`) {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestCallInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := &fakeGateway{}
	release := make(chan struct{})
	f.call = func(api.CallRequest) (any, *api.Error) {
		cancel()
		<-release
		return api.CallResponse{Result: json.RawMessage(`{}`)}, nil
	}
	tc := newTestCLI(t, "call", "x")
	tc.env["TINE_URL"] = f.start(t)
	code := tc.cli.run(ctx)
	close(release)
	if code != exitFailed || tc.err.String() != "tine: interrupted\n" {
		t.Errorf("exit %d, %q", code, tc.err.String())
	}
}

func TestWantsToken(t *testing.T) {
	f := &fakeGateway{servers: func() (any, *api.Error) {
		return nil, &api.Error{Kind: api.KindRefused, Message: "a token is wanted", Status: 401}
	}}
	_, stderr, code := run(t, f.start(t), "servers")
	if code != exitFailed || !strings.Contains(stderr, "TINE_TOKEN") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

func TestVersion(t *testing.T) {
	stdout, _, code := run(t, "", "version")
	if code != 0 || !strings.HasPrefix(stdout, "tine 1.2.3 (") || !strings.Contains(stdout, "2026-07-28") {
		t.Errorf("exit %d, %q", code, stdout)
	}
	if flag, _, code := run(t, "", "--version"); flag != stdout || code != 0 {
		t.Errorf("--version: exit %d, %q", code, flag)
	}
	stdout, _, _ = run(t, "", "version", "--json")
	var v buildVersion
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v.Version != "1.2.3" || len(v.Protocols) == 0 || v.Go == "" {
		t.Errorf("%v, %s", err, stdout)
	}
}

func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		stdout, stderr, code := run(t, "", "completion", shell)
		if code != 0 || !strings.Contains(stdout, "tine") || stderr != "" {
			t.Errorf("%s: exit %d, %q", shell, code, stderr)
		}
	}
}

// Without a gateway there is nothing to complete and nothing to say.
func TestCompletionWithoutGateway(t *testing.T) {
	for _, args := range [][]string{{"servers", "show", ""}, {"call", ""}, {"call", "x", ""}, {"logs", ""}} {
		stdout, _, code := run(t, "http://127.0.0.1:1", append([]string{"__complete"}, args...)...)
		if code != 0 || stdout != ":4\n" {
			t.Errorf("%q: exit %d, %q", args, code, stdout)
		}
	}
}

// A server may answer a call of a tool that it does not have with a result.
func TestMistypedToolWithoutArguments(t *testing.T) {
	f := world()
	f.call = func(r api.CallRequest) (any, *api.Error) {
		return json.RawMessage(`{"result":{"content":[{"type":"text","text":"Unknown tool: ` + r.Tool + `"}],"isError":true}}`), nil
	}
	url := f.start(t)
	for _, args := range [][]string{{"call", "files__drw"}, {"call", "files__drw", "a:=1"}, {"call", "files__drw", "--json"}} {
		stdout, stderr, code := run(t, url, args...)
		if code != exitFailed || !strings.Contains(stderr, `unknown tool "files__drw" (did you mean files__draw?)`) || !strings.Contains(stdout+stderr, "Unknown tool: files__drw") {
			t.Errorf("%v: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if _, stderr, code := run(t, url, "call", "files__draw"); code != exitFailed || strings.Contains(stderr, "did you mean") {
		t.Errorf("one that is there: exit %d, %q", code, stderr)
	}
}
