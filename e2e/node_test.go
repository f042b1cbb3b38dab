//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The programs of the module node that these tests run, built when they are first
// wanted: toolbox, proxy, consume and suite.
var nodePrograms = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(badServer), "node")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-C", "../node", "-trimpath", "-ldflags", "-s -w", "-o", dir+string(filepath.Separator), "./internal/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the programs of node: %w\n%s", err, out)
	}
	return dir, nil
})

func nodeProgram(t *testing.T, name string) string {
	t.Helper()
	dir, err := nodePrograms()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// serveNode runs a program of node that listens at its first argument, and returns
// the URL.
func serveNode(t *testing.T, name string, more ...string) string {
	t.Helper()
	return "http://" + serve(t, nodeProgram(t, name), func(addr string) []string { return append([]string{addr}, more...) })
}

// A nodeJob is what a client is to do: the same calls at each of the servers.
type nodeJob struct {
	Servers []nodeTarget `json:"servers"`
	Calls   []nodeCall   `json:"calls"`
}

type nodeTarget struct {
	Kind   string   `json:"kind"` // streamable, sse or stdio
	Era    string   `json:"era"`  // legacy or auto
	Target []string `json:"target"`
}

type nodeCall struct {
	Tool string          `json:"tool"`
	Args json.RawMessage `json:"args"`
}

// A nodeReport is what a client saw of a server.
type nodeReport struct {
	Protocol string
	Tools    []json.RawMessage
	Results  []nodeResult
}

type nodeResult struct {
	Content []struct {
		Type, Text, Data string
		MIMEType         string `json:"mimeType"`
	}
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Error      string          `json:"error"`
	Code       int             `json:"code"`
}

func (r nodeResult) text() string {
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "")
}

// A nodeClient does a job. One that is exact keeps all digits of numbers.
type nodeClient struct {
	name  string
	eras  []string
	exact bool
	do    func(*testing.T, nodeJob) []nodeReport
}

// byProgram is a client that is a program, which gets the job as its last argument.
func byProgram(command ...string) func(*testing.T, nodeJob) []nodeReport {
	return func(t *testing.T, j nodeJob) (reports []nodeReport) {
		t.Helper()
		job, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runTool(t.Context(), t, toolEnv(t), command[0], append(slices.Clone(command[1:]), string(job))...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &reports)
		}
		if err != nil || len(reports) != len(j.Servers) {
			t.Fatalf("%d reports, %v: %s", len(reports), err, out)
		}
		return reports
	}
}

// bySDK is the official SDK of Go.
func bySDK(t *testing.T, j nodeJob) (reports []nodeReport) {
	t.Helper()
	for _, s := range j.Servers {
		r, err := useSDK(t.Context(), s, j.Calls)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r)
	}
	return reports
}

func useSDK(ctx context.Context, s nodeTarget, calls []nodeCall) (r nodeReport, err error) {
	var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: s.Target[0]}
	switch s.Kind {
	case "sse":
		transport = &mcp.SSEClientTransport{Endpoint: s.Target[0]}
	case "stdio":
		transport = &mcp.CommandTransport{Command: exec.Command(s.Target[0], s.Target[1:]...)}
	}
	var opts mcp.ClientSessionOptions
	if s.Era == "legacy" {
		opts.ProtocolVersion = legacyVersion
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "e2e", Version: "1"}, nil).Connect(ctx, transport, &opts)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, cs.Close()) }()
	list, err := cs.ListTools(ctx, nil)
	if err != nil {
		return r, err
	}
	r.Protocol = cs.InitializeResult().ProtocolVersion
	for _, tool := range list.Tools {
		raw, err := json.Marshal(tool)
		if err != nil {
			return r, err
		}
		r.Tools = append(r.Tools, raw)
	}
	for _, c := range calls {
		var got nodeResult
		res, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: c.Tool, Arguments: c.Args})
		if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
			got.Error, got.Code = wire.Message, int(wire.Code)
		} else if err != nil {
			return r, err
		} else {
			raw, err := json.Marshal(res)
			if err == nil {
				err = json.Unmarshal(raw, &got)
			}
			if err != nil {
				return r, err
			}
		}
		r.Results = append(r.Results, got)
	}
	return r, nil
}

// nodeClients are the official clients, and node itself.
func nodeClients(t *testing.T) []nodeClient {
	t.Helper()
	paths := need(t, python, rewardKitPython, node, tsSDK1, tsSDK2)
	scripts, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	py, mjs := filepath.Join(scripts, "node.py"), filepath.Join(scripts, "node.mjs")
	return []nodeClient{
		{"python-2", []string{"legacy", "auto"}, true, byProgram(paths[0], py)},
		{"python-1", []string{"legacy"}, true, byProgram(paths[1], py)},
		{"typescript-1", []string{"legacy"}, false, byProgram(paths[2], mjs, "1")},
		{"typescript-2", []string{"legacy", "auto"}, false, byProgram(paths[2], mjs, "2")},
		{"go", []string{"legacy", "auto"}, false, bySDK},
		{"node", []string{"legacy", "auto"}, true, byProgram(nodeProgram(t, "consume"))},
	}
}

// byName decodes tools, so that their order and the order of their fields don't
// matter. What other SDKs add of their own, or leave out as it is the default, is
// taken away.
func byName(t *testing.T, tools []json.RawMessage) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, raw := range tools {
		var tool map[string]any
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		if a, ok := tool["annotations"].(map[string]any); ok {
			for k, v := range a {
				if v == false {
					delete(a, k)
				}
			}
		}
		all[fmt.Sprint(tool["name"])] = tool
	}
	return all
}

// sameTools compares what a client was listed with what the server has.
func sameTools(t *testing.T, got, want []json.RawMessage) {
	t.Helper()
	g, w := byName(t, got), byName(t, want)
	for name, tool := range w {
		if !reflect.DeepEqual(g[name], tool) {
			t.Errorf("tool %s is listed as %v, want %v", name, g[name], tool)
		}
		delete(g, name)
	}
	for name := range g {
		t.Errorf("tool %s is listed, which the server does not have", name)
	}
}

// sameValue compares values, with all digits of numbers if exact.
func sameValue(t *testing.T, got, want string, exact bool) bool {
	t.Helper()
	decode := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		if exact {
			d.UseNumber()
		}
		if err := d.Decode(&v); err != nil && s != "" {
			t.Errorf("%v in %q", err, s)
		}
		return v
	}
	return reflect.DeepEqual(decode(got), decode(want))
}

// nodeWants are calls of toolbox and what they answer.
var nodeWants = []struct {
	tool, args string
	text       string // that the answer has in it
	structured string
	isError    bool
	code       int
}{
	{"forecast", `{"place":{"name":"東京"}}`, "東京", `{"of":"東京","unit":"celsius","temps":[20.5,21.5,22.5],"near":0}`, false, 0},
	{"forecast", `{"place":{"name":"x","altitude":null},"unit":"開氏","days":1,"near":[{"name":"y","altitude":1.5}],"tags":["rain"]}`, "開氏",
		`{"of":"x","unit":"開氏","temps":[20.5],"near":1,"note":"rain"}`, false, 0},
	{"forecast", `{"place":{"name":"x"},"unit":"kelvin"}`, "unit", "", true, 0},
	{"forecast", `{"place":{"name":"x"},"days":2}`, "days", "", true, 0},
	{"forecast", `{"place":{}}`, "name", "", true, 0},
	{"forecast", `{"place":{"name":"x"},"unknown":1}`, "unknown", "", true, 0},
	{"add", `{"a":2,"b":3}`, `{"sum":5}`, `{"sum":5}`, false, 0},
	{"add", `{"a":2.5,"b":3}`, "a", "", true, 0},
	{"big", `{}`, `{"sum":9007199254740993}`, `{"sum":9007199254740993}`, false, 0},
	{"greet", `{"name":"Zoë <&>"}`, "Grüße, Zoë <&> 👋\n\u2028", "", false, 0},
	{"fail", `{}`, "out of paper: Größe A4", "", true, 0},
	{"refuse", `{}`, "not today", "", false, -32042},
	{"picture", `{}`, "a pixel", "", false, 0},
}

// TestNodeClients has the official clients use Go functions over every transport.
func TestNodeClients(t *testing.T) {
	t.Parallel()
	clients := nodeClients(t)
	program := nodeProgram(t, "toolbox")
	url := serveNode(t, "toolbox")
	out, err := exec.Command(program, "list").Output()
	var tools []json.RawMessage
	if err == nil {
		err = json.Unmarshal(out, &tools)
	}
	if err != nil {
		t.Fatal(err)
	}
	checkForecast(t, tools)
	targets := []nodeTarget{
		{"streamable", "legacy", []string{url + "/mcp"}}, {"streamable", "auto", []string{url + "/mcp"}}, {"streamable", "legacy", []string{url + "/streamable-http"}},
		{"sse", "legacy", []string{url + "/sse"}}, {"stdio", "legacy", []string{program}}, {"stdio", "auto", []string{program}},
	}
	var calls []nodeCall
	for _, w := range nodeWants {
		calls = append(calls, nodeCall{w.tool, json.RawMessage(w.args)})
	}
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			job := nodeJob{Calls: calls}
			for _, s := range targets {
				if slices.Contains(c.eras, s.Era) {
					job.Servers = append(job.Servers, s)
				}
			}
			for i, r := range c.do(t, job) {
				s := job.Servers[i]
				t.Run(s.Kind+"/"+s.Era, func(t *testing.T) { checkNode(t, c, s, r, tools) })
			}
		})
	}
}

func checkNode(t *testing.T, c nodeClient, s nodeTarget, r nodeReport, tools []json.RawMessage) {
	if want := map[string]string{"legacy": legacyVersion, "auto": modernVersion}[s.Era]; r.Protocol != want {
		t.Errorf("protocol %q, want %q", r.Protocol, want)
	}
	sameTools(t, r.Tools, tools)
	if len(r.Results) != len(nodeWants) {
		t.Fatalf("%d results of %d calls", len(r.Results), len(nodeWants))
	}
	for i, want := range nodeWants {
		got := r.Results[i]
		if said := got.text() + got.Error; !strings.Contains(said, want.text) || got.IsError != want.isError || got.Code != want.code {
			t.Errorf("%s %s answers %+v", want.tool, want.args, got)
		}
		if !sameValue(t, string(got.Structured), want.structured, c.exact) {
			t.Errorf("%s %s answers %s, want %s", want.tool, want.args, got.Structured, want.structured)
		}
		if want.tool == "picture" && (len(got.Content) != 2 || got.Content[1].Type != "image" || got.Content[1].MIMEType != "image/png" ||
			!strings.HasPrefix(got.Content[1].Data, "iVBORw0KGgo")) {
			t.Errorf("the picture is %+v", got.Content)
		}
	}
}

// checkForecast holds a schema against the tags it is made of, by hand.
func checkForecast(t *testing.T, tools []json.RawMessage) {
	t.Helper()
	place := `{"type":"object","properties":{"name":{"type":"string","description":"as people there write it: 東京, São Paulo"},
		"altitude":{"type":["null","number"]}},"required":["name"],"additionalProperties":false}`
	want := `{"type":"object","required":["place"],"additionalProperties":false,"properties":{"place":` + place + `,
		"unit":{"type":"string","description":"of the temperatures","default":"celsius","enum":["celsius","fahrenheit","開氏"]},
		"days":{"type":"integer","default":3,"enum":[1,3,7]},
		"near":{"type":["null","array"],"items":` + place + `},
		"tags":{"type":["null","array"],"items":{"type":"string","enum":["wind","rain"]}}}}`
	got, err := json.Marshal(byName(t, tools)["forecast"]["inputSchema"])
	if err != nil || !sameValue(t, string(got), want, true) {
		t.Errorf("the schema of forecast is %s, want %s (%v)", got, want, err)
	}
}
