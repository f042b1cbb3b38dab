//go:build unix

package e2e

import (
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeOfFastMCP consumes a server made with FastMCP, of two major versions, and
// compares what it lists with what the official client is listed.
func TestNodeOfFastMCP(t *testing.T) {
	t.Parallel()
	paths := need(t, python, openEnvPython)
	script, err := filepath.Abs("testdata/servers/fast.py")
	if err != nil {
		t.Fatal(err)
	}
	client, err := filepath.Abs("testdata/clients/node.py")
	if err != nil {
		t.Fatal(err)
	}
	listen := func(kind string) string {
		return "http://" + serve(t, paths[0], func(addr string) []string {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			return []string{script, kind, port}
		})
	}
	url := listen("http") + "/mcp"
	job := nodeJob{
		Servers: []nodeTarget{
			{"streamable", "auto", []string{url}}, {"streamable", "legacy", []string{url}}, {"sse", "auto", []string{listen("sse") + "/sse"}},
			{"stdio", "auto", []string{paths[0], script, "stdio"}}, {"stdio", "auto", []string{paths[1], script, "stdio"}},
		},
		Calls: []nodeCall{
			{"forecast", json.RawMessage(`{"place":{"name":"東京"},"unit":"開氏"}`)},
			{"double", json.RawMessage(`{"n":4503599627370497}`)},
			{"fail", json.RawMessage(`{"why":"out of paper: Größe A4"}`)},
			{"forecast", json.RawMessage(`{"place":{"name":"x"},"days":99}`)},
		},
	}
	reports := byProgram(nodeProgram(t, "consume"))(t, job)
	official := byProgram(paths[0], client)(t, nodeJob{Servers: job.Servers[:1], Calls: job.Calls})[0]
	for i, r := range reports {
		s := job.Servers[i]
		t.Run(s.Kind+"/"+s.Era+"/"+r.Protocol, func(t *testing.T) {
			if i < len(reports)-1 { // the last is of another version
				sameTools(t, r.Tools, official.Tools)
			}
			if len(r.Results) != len(job.Calls) {
				t.Fatalf("%d results", len(r.Results))
			}
			if got := r.Results[0]; !sameValue(t, string(got.Structured), `{"of":"東京 in 開氏","temps":[20.5,21.5,22.5],"digits":9007199254740993}`, true) {
				t.Errorf("forecast: %s", got.Structured)
			}
			if got := r.Results[1]; !sameValue(t, string(got.Structured), `{"result":9007199254740994}`, true) || got.text() != "9007199254740994" {
				t.Errorf("double: %+v", got)
			}
			if got := r.Results[2]; !got.IsError || !strings.Contains(got.text(), "out of paper: Größe A4") {
				t.Errorf("fail: %+v", got)
			}
			if got := r.Results[3]; !got.IsError && got.Code == 0 {
				t.Errorf("99 days: %+v", got)
			}
		})
	}
	if got, want := mustJSON(t, reports[0].Results), mustJSON(t, official.Results); got != want {
		t.Errorf("the calls answer %s, and to the official client %s", got, want)
	}
}
