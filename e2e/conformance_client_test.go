//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The suite starts a server for each scenario and a client that is to use it. The
// client is this test: the program that the suite starts is the test's own, which
// tells the test of the scenario and waits for it. So the gateway is what the suite
// sees of a client.

// driverKey says in the environment where scenarios are to be told.
const driverKey = "TINE_E2E_SCENARIOS"

// A scenario is what the suite tells a client.
type scenario struct {
	Name     string
	URL      string
	Revision string
	Context  struct {
		ClientID     string `json:"client_id"`
		ClientSecret string `json:"client_secret"`
		PrivateKey   string `json:"private_key_pem"`
		ToolCalls    []struct {
			Name      string
			Arguments json.RawMessage
		}
	}
}

// tellScenario is the whole of the program that the suite starts.
func tellScenario(to string) int {
	s := scenario{
		Name: os.Getenv("MCP_CONFORMANCE_SCENARIO"), Revision: os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION"), URL: os.Args[len(os.Args)-1],
	}
	if given := os.Getenv("MCP_CONFORMANCE_CONTEXT"); given != "" {
		if err := json.Unmarshal([]byte(given), &s.Context); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
	}
	body, err := json.Marshal(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	resp, err := http.Post(to, "application/json", strings.NewReader(string(body)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer resp.Body.Close()
	_, _ = io.Copy(os.Stderr, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return 1
	}
	return 0
}

// entry is the server of a scenario as the config has it.
func (s *scenario) entry() (string, error) {
	entry := map[string]any{"url": s.URL, "connect_timeout": patience.String(), "timeout": patience.String()}
	if strings.HasPrefix(s.Name, "auth/") {
		auth := map[string]any{"type": "login"}
		if strings.HasPrefix(s.Name, "auth/client-credentials") {
			auth["type"] = "client_credentials"
		}
		if s.Context.ClientID != "" {
			auth["client_id"] = s.Context.ClientID
		}
		if s.Context.ClientSecret != "" {
			auth["client_secret"] = s.Context.ClientSecret
		}
		if s.Context.PrivateKey != "" {
			auth["private_key"] = s.Context.PrivateKey
		}
		if s.Name == "auth/basic-cimd" {
			auth["client_metadata_url"] = "https://conformance-test.local/client-metadata.json" // the suite looks for this URL and fetches nothing from it
		}
		entry["auth"] = auth
	}
	raw, err := json.Marshal(map[string]any{"limits": map[string]any{"list_wait": patience.String()}, "servers": map[string]any{"up": entry}})
	return string(raw), err
}

// play is what a person does with the server of a scenario: look at what it has, and
// use all of it, logging in when the gateway says so.
func (s *scenario) play(ctx context.Context, t *testing.T) error {
	config, err := s.entry()
	if err != nil {
		return err
	}
	g := newGateway(t, config)
	defer g.end()
	if err := g.start(); err != nil {
		return err
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{}}, nil
		},
	})
	// A client with a handshake leaves to the gateway all that is new in the era without.
	cs, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: g.url + "/mcp", MaxRetries: -1}, &mcp.ClientSessionOptions{ProtocolVersion: legacyVersion})
	if err != nil {
		return err
	}
	defer cs.Close()
	logins := 0
	for {
		err := s.use(ctx, g.url+"/mcp", cs)
		if err == nil || !strings.Contains(err.Error(), "tine login") || logins == 3 {
			return err
		}
		logins++
		if _, err := g.login(t, "up"); err != nil {
			return err
		}
	}
}

// use lists and calls. Its error says what went wrong first.
func (s *scenario) use(ctx context.Context, url string, cs *mcp.ClientSession) error {
	tools, err := cs.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	if missing, ok := tools.Meta["tine/missing"]; ok {
		return fmt.Errorf("the list lacks %v", missing)
	}
	if s.Name == "http-invalid-tool-headers" {
		return useByHand(ctx, url)
	}
	args := map[string]any{"a": 5, "b": 3, "region": "us-west1"}
	var failed error
	call := func(name string, args any) {
		r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "up__" + name, Arguments: args})
		if err == nil && r.IsError {
			err = fmt.Errorf("%s: %v", name, r.Content)
			for _, c := range r.Content {
				if text, ok := c.(*mcp.TextContent); ok {
					err = errors.New(text.Text)
				}
			}
		}
		failed = errors.Join(failed, err)
	}
	for _, c := range s.Context.ToolCalls {
		call(c.Name, c.Arguments)
	}
	for _, tool := range tools.Tools {
		name := strings.TrimPrefix(tool.Name, "up__")
		switch {
		case len(s.Context.ToolCalls) > 0:
		case name == "json_schema_2020_12_tool":
			call("json_schema_echo", map[string]any{"schema": tool.InputSchema})
		case name != "json_schema_echo":
			call(name, args)
		}
	}
	if s.Name == "http-standard-headers" {
		resources, err := cs.ListResources(ctx, nil)
		if err != nil {
			return err
		}
		for _, r := range resources.Resources {
			_, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: r.URI})
			failed = errors.Join(failed, err)
		}
		prompts, err := cs.ListPrompts(ctx, nil)
		if err != nil {
			return err
		}
		for _, p := range prompts.Prompts {
			_, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: p.Name})
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// useByHand calls all tools that are listed. The SDK would leave out those that a client
// is not to call, which is the gateway's part here.
func useByHand(ctx context.Context, url string) error {
	c, err := open(ctx, url, nil)
	if err != nil {
		return err
	}
	names, err := c.tools(ctx)
	for _, name := range names {
		_, failed := c.call(ctx, name, map[string]any{"region": "us-west1"})
		err = errors.Join(err, failed)
	}
	return err
}

// TestConformanceOfTheGateway runs what the official suite has for clients, with a
// gateway before its servers, in both revisions.
func TestConformanceOfTheGateway(t *testing.T) {
	t.Parallel()
	need(t, conformance, node)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	atOnce := make(chan struct{}, 4)
	driver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var s scenario
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		atOnce <- struct{}{}
		defer func() { <-atOnce }()
		if err := s.play(r.Context(), t); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
	t.Cleanup(driver.Close)
	for _, tt := range []struct {
		revision string
		atLeast  int // how many requests a scenario takes, and so checks, varies
		// left are the scenarios that are not scored and fail.
		left []string
	}{
		{legacyVersion, 250, []string{"auth/enterprise-managed-authorization", "auth/wif-jwt-bearer"}},
		{modernVersion, 380, []string{"auth/enterprise-managed-authorization", "auth/wif-jwt-bearer"}},
	} {
		t.Run(tt.revision, func(t *testing.T) {
			all, err := conform(t, []string{driverKey + "=" + driver.URL}, "client", "--command", self, "--requirements", tt.revision, "--timeout", "600000")
			passed, failed := all.totals()
			t.Logf("%d passed, %d failed", passed, failed)
			if passed < tt.atLeast {
				t.Errorf("%d checks passed, want at least %d", passed, tt.atLeast)
			}
			for _, name := range []string{
				"auth/basic-cimd/cimd-client-id-used", // otherwise the suite only warns
				"auth/client-credentials-basic/client-credentials-basic-auth", "auth/client-credentials-jwt/client-credentials-jwt-verified",
				"auth/dpop/sep-1932-client-fresh-proof", "auth/dpop-nonce/sep-1932-client-as-nonce", "auth/dpop-nonce/sep-1932-client-rs-nonce",
			} {
				if all[name][0] == 0 {
					t.Errorf("%s did not pass", name)
				}
			}
			wrong := map[string]bool{}
			for name, n := range all {
				if n[1] > 0 {
					scenario := name[:strings.LastIndex(name, "/")]
					wrong[scenario] = true
					t.Logf("%s: %d failed", name, n[1])
				}
			}
			if got := slices.Sorted(maps.Keys(wrong)); !slices.Equal(got, slices.Sorted(slices.Values(tt.left))) {
				t.Errorf("these scenarios fail: %q, want %q", got, tt.left)
			}
			if err != nil { // a scored one fails
				t.Errorf("the suite: %v", err)
			}
		})
	}
}
