package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(victimVar); dir != "" {
		victim(dir) // does not return
	}
	goleak.VerifyTestMain(m)
}

// stateless is a kind that has only settings.
func stateless(make func(map[string]any) (*mcp.Server, error)) Kind {
	return Kind{New: func(e Env) (*mcp.Server, io.Closer, error) {
		s, err := make(e.Settings)
		return s, nil, err
	}}
}

// frames lets the SDK's client speak over a driver's stream.
type frames struct{ s driver.Stream }

func (f frames) Connect(context.Context) (mcp.Connection, error) { return f, nil }
func (f frames) SessionID() string                               { return "" }
func (f frames) Close() error                                    { return f.s.Close() }

func (f frames) Read(context.Context) (jsonrpc.Message, error) {
	b, err := f.s.ReadFrame()
	if err != nil {
		return nil, err
	}
	if bytes.ContainsAny(b, "\r\n") {
		return nil, fmt.Errorf("line end in frame %q", b)
	}
	return jsonrpc.DecodeMessage(b)
}

func (f frames) Write(ctx context.Context, m jsonrpc.Message) error {
	b, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	err = f.s.WriteFrame(ctx, b)
	clear(b) // a writer may use its buffer again
	return err
}

type echoArgs struct {
	Text string `json:"text"`
}

// sample is a server with one tool for each thing that can go wrong. A call of
// "stuck" waits for free and heeds nothing; "wait" ends when cancelled.
func sample(entered chan<- string, free <-chan struct{}) Kind {
	return stateless(func(map[string]any) (*mcp.Server, error) {
		s := mcp.NewServer(&mcp.Implementation{Name: "sample", Version: "1"}, nil)
		mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in echoArgs) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "raw"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{StructuredContent: json.RawMessage("{\n \"a\": [\r\n1]\n}")}, nil, nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "panic"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			panic("the tool is broken")
		})
		mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			entered <- "wait"
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})
		mcp.AddTool(s, &mcp.Tool{Name: "stuck"}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			entered <- "stuck"
			<-free
			return nil, nil, errors.New("late")
		})
		mcp.AddTool(s, &mcp.Tool{Name: "flood"}, func(ctx context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			entered <- "flood"
			for i := 0; ; i++ {
				if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: float64(i)}); err != nil {
					return nil, nil, err
				}
			}
		})
		mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(_ context.Context, req *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
			if r, ok := req.Params.InputResponses["q"].(*mcp.ElicitResult); ok {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "got " + r.Action}}}, nil, nil
			}
			return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"q": &mcp.ElicitParams{Mode: "form", Message: "?"}}}, nil, nil
		})
		return s, nil
	})
}

type fixture struct {
	driver  *Driver
	entered chan string
	free    chan struct{}
}

func newFixture() *fixture {
	f := &fixture{entered: make(chan string, 8), free: make(chan struct{})}
	f.driver = New(Options{Kinds: map[string]Kind{
		"sample": sample(f.entered, f.free),
		"broken": stateless(func(map[string]any) (*mcp.Server, error) {
			return nil, errors.New("settings.x must be true or false, not a string")
		}),
	}})
	return f
}

func (f *fixture) start(t *testing.T) driver.Instance {
	t.Helper()
	inst, err := f.driver.Start(t.Context(), driver.Spec{Server: "s", Builtin: "sample"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := inst.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return inst
}

func dial(t *testing.T, inst driver.Instance) driver.Stream {
	t.Helper()
	l, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if l.Stream == nil || l.HTTP != nil {
		t.Fatalf("link = %+v, want a stream", l)
	}
	return l.Stream
}

func connect(t *testing.T, inst driver.Instance, era string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	cs, err := c.Connect(t.Context(), frames{dial(t, inst)}, &mcp.ClientSessionOptions{ProtocolVersion: era})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close() })
	if got := cs.InitializeResult().ProtocolVersion; got != era {
		t.Fatalf("negotiated %s, want %s", got, era)
	}
	return cs
}

func text(res *mcp.CallToolResult) string {
	if len(res.Content) == 0 {
		return ""
	}
	return res.Content[0].(*mcp.TextContent).Text
}

func TestEras(t *testing.T) {
	for _, era := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		t.Run(era, func(t *testing.T) {
			f := newFixture()
			cs := connect(t, f.start(t), era, &mcp.ClientOptions{
				ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "decline"}, nil
				},
			})
			tools, err := cs.ListTools(t.Context(), nil)
			if err != nil || len(tools.Tools) != 7 {
				t.Fatalf("%v tools, %v", tools, err)
			}
			big := strings.Repeat("ü\n\"", 1<<16)
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{big}})
			if err != nil || text(res) != big {
				t.Fatalf("echo of %d bytes: %d bytes, %v", len(big), len(text(res)), err)
			}
			if res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "raw"}); err != nil {
				t.Fatal(err)
			}
			if got, _ := json.Marshal(res.StructuredContent); string(got) != `{"a":[1]}` {
				t.Errorf("structured content = %s", got)
			}
			if res, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "ask"}); err != nil || text(res) != "got decline" {
				t.Errorf("ask: %v, %v", res, err)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	f := newFixture()
	_, err := f.driver.Start(t.Context(), driver.Spec{Server: "web", Builtin: "nope"})
	if err == nil || !strings.Contains(err.Error(), `no built-in server "nope"; set servers.web.builtin to one of broken, sample`) {
		t.Errorf("err = %v", err)
	}
	_, err = f.driver.Start(t.Context(), driver.Spec{Server: "web", Builtin: "broken"})
	if err == nil || err.Error() != `server "web": built-in server "broken": settings.x must be true or false, not a string` {
		t.Errorf("err = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = f.driver.Start(ctx, driver.Spec{Server: "web", Builtin: "sample"}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestHandleAndFolder(t *testing.T) {
	f := newFixture()
	if info := f.driver.Info(); info.Name != Name || info.Adopts || !info.Light {
		t.Errorf("info = %+v", info)
	}
	folder := func() string {
		dir := filepath.Join(t.TempDir(), "inst")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	gone := func(dir string) {
		t.Helper()
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	dir := folder()
	inst, err := f.driver.Start(t.Context(), driver.Spec{Server: "s", Session: "ses_1", Builtin: "sample", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	h := inst.Handle()
	if h.Driver != Name || h.Server != "s" || h.Session != "ses_1" || h.Dir != dir || string(h.Data) != `{"builtin":"sample"}` {
		t.Errorf("handle = %+v", h)
	}
	r, err := inst.Logs(100)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || len(b) != 0 {
		t.Errorf("logs = %q, %v", b, err)
	}
	r.Close()
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	gone(dir)

	h.Dir = folder()
	if _, err := f.driver.Adopt(t.Context(), h, nil); !errors.Is(err, driver.ErrGone) {
		t.Errorf("adopt: err = %v", err)
	}
	gone(h.Dir)
}
