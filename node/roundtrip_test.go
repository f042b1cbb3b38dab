package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/tine-mcp/tine/node"
)

// everyWay runs a test over every transport, in every era that it has.
func everyWay(t *testing.T, test func(t *testing.T, s *node.Server)) {
	for _, tt := range []struct {
		name, path, version string
	}{
		{"stateless", "/mcp", ""},
		{"handshake", "/mcp", "2025-11-25"},
		{"2024", "/streamable-http", "2024-11-05"},
		{"sse", "/sse", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := serve(t, testNodes()...)
			test(t, connect(t, node.HTTP(url+tt.path), &node.Options{ProtocolVersion: tt.version}))
		})
	}
	for _, version := range []string{"", "2025-11-25"} {
		t.Run("stdio"+version, func(t *testing.T) {
			test(t, connect(t, self("nodes"), &node.Options{ProtocolVersion: version}))
		})
	}
}

func TestRoundTrip(t *testing.T) {
	everyWay(t, func(t *testing.T, s *node.Server) {
		out, err := node.Call[addIn, addOut](t.Context(), get(t, s, "add"), addIn{9007199254740990, 3})
		if err != nil || out.Sum != 9007199254740993 {
			t.Errorf("add: %v, %v", out, err)
		}
		_, err = node.Call[struct{}, string](t.Context(), get(t, s, "fail"), struct{}{})
		if !errors.Is(err, node.ErrTool) || !strings.Contains(err.Error(), "out of paper") || !strings.Contains(err.Error(), `"fail"`) {
			t.Errorf("fail: %v", err)
		}
		res, err := get(t, s, "fail").Call(t.Context(), nil)
		if err != nil || !errors.Is(res.Err(), node.ErrTool) || res.Text() != "out of paper" {
			t.Errorf("fail: %v, %v", res, err)
		}
	})
}

// TestEras says that the eras are what TestRoundTrip takes them for.
func TestEras(t *testing.T) {
	url := serve(t, testNodes()...)
	for version, want := range map[string]string{"": "2026-07-28", "2025-11-25": "2025-11-25", "2024-11-05": "2024-11-05"} {
		s := connect(t, node.HTTP(url+"/mcp"), &node.Options{ProtocolVersion: version})
		session, err := s.Session(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := session.InitializeResult().ProtocolVersion; got != want {
			t.Errorf("asked for %q: %s, want %s", version, got, want)
		}
	}
}

func TestNothingIsLost(t *testing.T) {
	args := json.RawMessage(`{"n":9007199254740993,"x":[1.10,{"ä":12345678901234567890}]}`)
	want := compact(t, strings.Replace(oddResult, "ARGS", string(args), 1))
	everyWay(t, func(t *testing.T, s *node.Server) {
		check := func(what string, n *node.Node) {
			res, err := n.Call(t.Context(), args)
			if err != nil {
				t.Fatal(what, err)
			}
			for _, part := range []string{"content", "structuredContent", "x-more"} {
				if got, want := field(t, res.Raw, part), field(t, want, part); got != want {
					t.Errorf("%s: %s is %s, want %s", what, part, got, want)
				}
			}
			var exact struct{ N json.Number }
			if err := res.Decode(&exact); err != nil || exact.N != "9007199254740993" {
				t.Errorf("%s: decoded %v, %v", what, exact, err)
			}
		}
		check("consumed", get(t, s, "odd"))
		for _, version := range []string{"", "2025-11-25"} {
			again := connect(t, node.HTTP(serve(t, s)+"/mcp"), &node.Options{ProtocolVersion: version})
			check("exposed again "+version, get(t, again, "odd"))
			third := connect(t, node.HTTP(serve(t, again)+"/mcp"), nil)
			check("exposed a third time "+version, get(t, third, "odd"))
			merged, err := node.Merge(map[string]node.Source{"one": third})
			if err != nil {
				t.Fatal(err)
			}
			if got := listed(t, merged, "one__odd"); field(t, got, "inputSchema") != string(compact(t, oddSchema)) {
				t.Errorf("schema: %s", got)
			}
		}
	})
}

// listed is a tool as the JSON that a client of the SDK gets of it.
func listed(t *testing.T, s node.Source, name string) json.RawMessage {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "s"}, nil)
	if err := node.Expose(server, s); err != nil {
		t.Fatal(err)
	}
	var log lockedBuffer
	ct, st := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ss.Close()
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "c"}, nil).Connect(t.Context(), &mcp.LoggingTransport{Transport: ct, Writer: &log}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer cs.Close()
	if _, err := cs.ListTools(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(log.String()) {
		var msg struct {
			Result struct{ Tools []json.RawMessage }
		}
		if text, ok := strings.CutPrefix(line, "read: "); ok && json.Unmarshal([]byte(text), &msg) == nil {
			for _, tool := range msg.Result.Tools {
				if field(t, tool, "name") == fmt.Sprintf("%q", name) {
					return tool
				}
			}
		}
	}
	t.Fatalf("no tool %s in %s", name, log.String())
	return nil
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func compact(t *testing.T, s string) json.RawMessage {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func field(t *testing.T, object json.RawMessage, name string) string {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(object, &fields); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	return string(compact(t, string(fields[name])))
}

func TestBig(t *testing.T) {
	size := 20 << 20
	if raceDetector {
		size = 1 << 20 // it makes the codecs slow; make unit has the full size without it
	}
	url := serve(t, testNodes()...)
	for name, dial := range map[string]func() (mcp.Transport, error){
		"http": node.HTTP(url + "/mcp"), "sse": node.HTTP(url + "/sse"), "stdio": self("nodes"),
	} {
		s := connect(t, dial, nil)
		text, err := node.Call[map[string]int, string](t.Context(), get(t, s, "big"), map[string]int{"size": size})
		if err != nil || len(text) != size {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	everyWay(t, func(t *testing.T, s *node.Server) {
		n := get(t, s, "add")
		var all sync.WaitGroup
		for i := range int64(1000) {
			all.Go(func() {
				out, err := node.Call[addIn, addOut](t.Context(), n, addIn{i, 1})
				if err != nil || out.Sum != i+1 {
					t.Errorf("%d: %v, %v", i, out, err)
				}
			})
		}
		all.Wait()
	})
}
