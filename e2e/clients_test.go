//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runTool runs a program of others to its end and returns its standard output.
func runTool(ctx context.Context, t testing.TB, env []string, program string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = env
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s\n%s", err, tail(string(exit.Stderr), 4<<10), out)
	}
	return string(out), err
}

// clientGateway serves one server behind which every client looks the same.
func clientGateway(t *testing.T) *gateway {
	paths := need(t, node, npmEverything)
	return startGateway(t, patientLists+"servers:\n"+yamlServer("every", paths[0], []string{paths[1]}))
}

// TestSDKClients connects the official SDKs over every transport, in the
// handshake of the legacy era and in whatever they agree on by themselves.
func TestSDKClients(t *testing.T) {
	t.Parallel()
	need(t, node, npmEverything, python, tsSDK1, tsSDK2)
	g := clientGateway(t)
	scripts, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	clients := []struct {
		name     string
		command  []string
		eras     []string
		protocol map[string]string // by era; missing where the SDK does not say
	}{
		{"python", []string{filepath.Join(toolsDir(), python), filepath.Join(scripts, "python.py")},
			[]string{"legacy", "auto"}, map[string]string{"legacy": legacyVersion, "auto": modernVersion}},
		{"typescript-1", []string{filepath.Join(toolsDir(), node), filepath.Join(scripts, "ts1.mjs")},
			[]string{"legacy"}, nil},
		{"typescript-2", []string{filepath.Join(toolsDir(), node), filepath.Join(scripts, "ts2.mjs")},
			[]string{"legacy", "auto"}, map[string]string{"legacy": legacyVersion, "auto": modernVersion}},
	}
	transports := []struct {
		name   string
		kind   string
		target []string
	}{
		{"streamable", "streamable", []string{g.url + "/mcp"}},
		{"streamable-http", "streamable", []string{g.url + "/streamable-http"}},
		{"sse", "sse", []string{g.url + "/sse"}},
		{"stdio", "stdio", []string{tineBinary, "stdio", "--state", g.state()}},
	}
	for _, c := range clients {
		for _, tr := range transports {
			for _, era := range c.eras {
				if tr.kind == "sse" && era != "legacy" {
					continue // the transport is older than the modern era
				}
				t.Run(c.name+"/"+tr.name+"/"+era, func(t *testing.T) {
					t.Parallel()
					word := "hello from " + t.Name()
					args, err := json.Marshal(map[string]string{"message": word})
					if err != nil {
						t.Fatal(err)
					}
					line := slices.Concat(c.command[1:], []string{tr.kind, era, "every__echo", string(args)}, tr.target)
					out, err := runTool(t.Context(), t, toolEnv(t), c.command[0], line...)
					if err != nil {
						t.Fatal(err)
					}
					var got struct {
						Protocol string
						Tools    []string
						Text     string
						IsError  bool
					}
					if err := json.Unmarshal([]byte(out), &got); err != nil {
						t.Fatalf("%v in %s", err, out)
					}
					if got.Text != "Echo: "+word || got.IsError {
						t.Errorf("the call answers %q (error: %t)", got.Text, got.IsError)
					}
					if !slices.Contains(got.Tools, "every__get-sum") {
						t.Errorf("every__get-sum is not listed: %v", got.Tools)
					}
					if want := c.protocol[era]; want != "" && got.Protocol != want {
						t.Errorf("protocol %q, want %q", got.Protocol, want)
					}
				})
			}
		}
	}
}

// TestInspector runs the command line of the official Inspector.
func TestInspector(t *testing.T) {
	t.Parallel()
	program := need(t, inspector, node)[0]
	g := clientGateway(t)
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"http/legacy", []string{g.url + "/mcp", "--protocol-era", "legacy"}},
		{"http/modern", []string{g.url + "/mcp", "--protocol-era", "modern"}},
		{"sse", []string{g.url + "/sse", "--transport", "sse"}},
		{"stdio", []string{tineBinary, "stdio", "--state", g.state()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			inspect := func(args ...string) string {
				line := slices.Concat([]string{"--cli"}, tt.args, args)
				out, err := runTool(t.Context(), t, toolEnv(t), program, line...)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			if out := inspect("--method", "tools/list"); !strings.Contains(out, `"every__echo"`) {
				t.Errorf("every__echo is not listed:\n%s", out)
			}
			out := inspect("--method", "tools/call", "--tool-name", "every__echo", "--tool-arg", "message=inspected")
			if !strings.Contains(out, "Echo: inspected") {
				t.Errorf("the call answers\n%s", out)
			}
		})
	}
}
