package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestWhereStdioJoins(t *testing.T) {
	for _, tt := range []struct {
		address string
		flags   stdioFlags
		want    string // or what the error says
	}{
		{"http://h:1", stdioFlags{}, "http://h:1/mcp"},
		{"http://h:1/", stdioFlags{server: "m", errors: "protocol"}, "http://h:1/mcp/m?errors=protocol"},
		{"https://h/tools", stdioFlags{session: "work"}, "https://h/tools/mcp?session=work"},
		{"https://h/tools?session=work&key=a%2Fb", stdioFlags{view: "search"}, "https://h/tools/mcp?key=a%2Fb&session=work&view=search"},
		{"http://h:1/mcp?session=work", stdioFlags{}, "http://h:1/mcp?session=work"},
		{"http://h:1/mcp?session=work", stdioFlags{session: "work", server: "m"}, "http://h:1/mcp/m?session=work"},
		{"http://h:1/mcp?sesion=work", stdioFlags{}, "http://h:1/mcp?sesion=work"}, // for the gateway to refuse
		{"http://h:1/s/sse/mcp/m", stdioFlags{}, "http://h:1/s/sse/mcp/m"},
		{"http://h:1/streamable-http/m", stdioFlags{}, "http://h:1/streamable-http/m"},
		{"http://h:1/mcp?session=work", stdioFlags{session: "play"}, "--session play and ?session=work"},
		{"http://h:1/mcp?errors=results", stdioFlags{errors: "protocol"}, "--errors protocol and ?errors=results"},
		{"http://h:1/mcp/m", stdioFlags{server: "n"}, "both name a server"},
		{"http://h:1/sse", stdioFlags{}, "event stream"},
		{"http://h:1/mcp/m/sse", stdioFlags{}, "event stream"},
		{"http://h:1/mcp?a;b", stdioFlags{}, "can't be read"},
		{"h:1/mcp", stdioFlags{}, "write it like"},
	} {
		got, err := tt.flags.at(tt.address)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != tt.want || err != nil && (strings.HasPrefix(tt.want, "http") || !strings.Contains(got, tt.want)) {
			t.Errorf("%s with %+v: %s, want %s", tt.address, tt.flags, got, tt.want)
		}
	}
}

// TestStdioAtAURL holds what a gateway is asked by tine stdio that was told where it is.
func TestStdioAtAURL(t *testing.T) {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}` + "\n"
	var mu sync.Mutex
	var asked []string
	gateway := func() string {
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked = append(asked, r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
			mu.Unlock()
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Content-Type", "application/json")
			switch {
			case r.URL.Query().Has("sesion"):
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"kind":"invalid","message":"it is called session"}`)
			case strings.Contains(string(body), "initialize\""):
				_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}`)
			default:
				w.WriteHeader(http.StatusAccepted)
			}
		}))
		t.Cleanup(ts.Close)
		return ts.URL
	}
	own, other := gateway(), gateway()
	for _, tt := range []struct {
		name string
		args []string
		env  string // TINE_URL
		asks string // of every request; empty where none is made
		says string
		code int
	}{
		{"its query", []string{"--url", other + "/mcp?session=work"}, "", "/mcp?session=work ", "", 0},
		{"the gateway of the state folder", []string{"--url", own + "/mcp?session=work"}, "", "/mcp?session=work Bearer file-token", "", 0},
		{"a token", []string{"--url", own, "--token", "mine"}, "", "/mcp Bearer mine", "", 0},
		{"flags", []string{"--url", other, "--session", "work", "--server", "m", "--view", "search"}, "", "/mcp/m?session=work&view=search ", "", 0},
		{"the environment", nil, other + "/mcp?session=work", "/mcp?session=work ", "", 0},
		{"a wrong query", []string{"--url", other + "/mcp?sesion=work"}, "", "/mcp?sesion=work ", "it is called session", 2},
		{"no gateway there", []string{"--url", "http://127.0.0.1:1/mcp"}, "", "", "no gateway at 127.0.0.1:1", 1},
		{"on its own at a URL", []string{"--url", other, "--alone"}, "", "", "exclude each other", 2},
		{"a config at a URL", []string{"--url", other, "--config", "x.yaml"}, "", "", "exclude each other", 2},
		{"a session on its own", []string{"--alone", "--session", "work"}, "", "", "exclude each other", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked = nil
			tc := newTestCLI(t, append([]string{"stdio"}, tt.args...)...)
			tc.cli.stdin = strings.NewReader(hello)
			if tt.env != "" {
				tc.env["TINE_URL"] = tt.env
			}
			if err := writeGatewayFile(tc.env["TINE_STATE"], gatewayFile{URL: own, Token: "file-token", PID: 7}); err != nil {
				t.Fatal(err)
			}
			if code := tc.cli.run(t.Context()); code != tt.code || !strings.Contains(tc.err.String(), tt.says) {
				t.Errorf("exit %d: %s", code, tc.err.String())
			}
			mu.Lock()
			defer mu.Unlock()
			for _, got := range asked {
				if got != tt.asks {
					t.Errorf("asked %q, want %q", got, tt.asks)
				}
			}
			if tt.asks != "" && len(asked) == 0 {
				t.Error("nothing was asked")
			}
			if answered := strings.Contains(tc.out.String(), `"serverInfo"`); answered != (tt.code == 0) {
				t.Errorf("the client got %s", tc.out.String())
			}
		})
	}
	t.Run("a session without a gateway", func(t *testing.T) {
		tc := newTestCLI(t, "stdio", "--session", "work")
		tc.cli.stdin = strings.NewReader(hello)
		if code := tc.cli.run(t.Context()); code != 2 || !strings.Contains(tc.err.String(), "needs a running gateway") || tc.out.String() != "" {
			t.Errorf("exit %d: %s %s", code, tc.err.String(), tc.out.String())
		}
	})
}
