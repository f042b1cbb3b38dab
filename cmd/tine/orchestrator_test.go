package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// serving runs an orchestrator on a state folder until end is called, which
// returns what it printed.
func serving(t *testing.T, state string, more ...string) (url string, end func() string) {
	t.Helper()
	tc := newTestCLI(t, append([]string{"orchestrator", "serve", "--listen", "127.0.0.1:0", "--state", state}, more...)...)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan int, 1)
	go func() { ran <- tc.cli.run(ctx) }()
	return gatewayOf(t, state).URL, func() string {
		t.Helper()
		stop()
		if code := <-ran; code != 0 {
			t.Errorf("exit %d: %s", code, tc.err.String())
		}
		return tc.out.String()
	}
}

// request asks an orchestrator for something.
func request(t *testing.T, method, url, token, body string) (int, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, b
}

// TestOrchestratorServe makes an instance, lets it remember something, and finds
// it again after a restart.
func TestOrchestratorServe(t *testing.T) {
	t.Chdir(t.TempDir())
	state := t.TempDir()
	url, end := serving(t, state)
	status, body := request(t, "POST", url+"/instances", "", `{"resource_type_identifier":"memory","session_id":"a"}`)
	var made []api.Instance
	if err := json.Unmarshal(body, &made); err != nil || status != http.StatusOK || len(made) != 1 || made[0].URL != url+"/s/"+made[0].ID+"/mcp/memory" {
		t.Fatalf("status %d %s", status, body)
	}
	call := func(base, tool, args string) []byte {
		t.Helper()
		status, body := request(t, "POST", base+strings.TrimPrefix(made[0].URL, url), made[0].Token,
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+args+`}}`)
		if status != http.StatusOK {
			t.Fatalf("status %d %s", status, body)
		}
		return body
	}
	call(url, "create_entities", `{"entities":[{"name":"ada","entityType":"person","observations":[]}]}`)
	// The rest of a gateway is there too.
	for _, path := range []string{"/openapi.json", "/health", "/v1/openapi.json", "/v1/sessions", "/healthz"} {
		if status, body := request(t, "GET", url+path, "", ""); status != http.StatusOK {
			t.Errorf("%s: status %d %s", path, status, body)
		}
	}
	out := end()
	first, _, _ := strings.Cut(out, "\n")
	if want := "Tine 1.2.3 serves the orchestration API at " + url + "/instances"; first != want {
		t.Errorf("the first line is %q, want %q", first, want)
	}
	for _, want := range []string{url + "/openapi.json", "curl -d", `"resource_type_identifier":"`, "remote_instance_id}/fork", "url: " + url} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "Authorization") {
		t.Errorf("it asks for a token that it does not want:\n%s", out)
	}

	again, end := serving(t, state)
	if body := call(again, "read_graph", "{}"); !bytes.Contains(body, []byte("ada")) {
		t.Errorf("after a restart: %s", body)
	}
	if status, body := request(t, "DELETE", again+"/instances/"+made[0].ID, "", ""); status != http.StatusNoContent {
		t.Errorf("status %d %s", status, body)
	}
	end()
}

func TestOrchestratorUse(t *testing.T) {
	for _, tt := range []struct {
		args []string
		code int
		say  string
	}{
		{[]string{"orchestrator"}, 0, "tine orchestrator serve"},
		{[]string{"orchestrator", "serve", "--help"}, 0, "/instances"},
		{[]string{"orchestrator", "srve"}, exitUsage, "serve"},
		{[]string{"orchestrator", "serve", "x"}, exitUsage, "argument"},
		{[]string{"orchestrator", "serve", "--lisen", "x"}, exitUsage, "--lisen"},
		{[]string{"orchestrator", "serve", "--config", "/nonexistent.yaml"}, exitFailed, "nonexistent"},
		{[]string{"__complete", "orchestrator", "s"}, 0, "serve"},
		{[]string{"__complete", "orchestrator", "serve", "--keep"}, 0, "--keep-instances"},
	} {
		out, errs, code := run(t, "http://127.0.0.1:1", tt.args...)
		if code != tt.code || !strings.Contains(out+errs, tt.say) {
			t.Errorf("%v: exit %d, want %d and %q: %s%s", tt.args, code, tt.code, tt.say, out, errs)
		}
	}
}
