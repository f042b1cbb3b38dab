package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
func sample(entered chan<- string, free <-chan struct{}) Factory {
	return func(map[string]any) (*mcp.Server, error) {
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
	}
}

type fixture struct {
	driver  *Driver
	entered chan string
	free    chan struct{}
}

func newFixture() *fixture {
	f := &fixture{entered: make(chan string, 8), free: make(chan struct{})}
	f.driver = New(map[string]Factory{
		"sample": sample(f.entered, f.free),
		"broken": func(map[string]any) (*mcp.Server, error) {
			return nil, errors.New("settings.x must be true or false, not a string")
		},
	})
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

func TestManyCallers(t *testing.T) {
	f := newFixture()
	cs := connect(t, f.start(t), "2026-07-28", nil)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for j := range 20 {
				want := fmt.Sprintf("%d/%d", i, j)
				res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{want}})
				if err != nil || text(res) != want {
					t.Errorf("echo %s: %v, %v", want, res, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestOneLinkAtATime(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	for range 3 {
		cs := connect(t, inst, "2025-11-25", nil)
		if _, err := inst.Dial(t.Context()); err == nil || !strings.Contains(err.Error(), "link already") {
			t.Fatalf("second dial: err = %v", err)
		}
		if err := cs.Close(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-inst.Done():
		t.Fatal("the instance ended with its link")
	default:
	}
}

func TestLinkOutlivesDialContext(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	l, err := inst.Dial(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	cs, err := c.Connect(t.Context(), frames{l.Stream}, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs.Close()
}

func TestCloseCancelsCalls(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	cs := connect(t, inst, "2026-07-28", nil)
	failed := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "wait"})
		failed <- err
	}()
	<-f.entered
	// Closing the gateway's end cancels the call, so the session can end.
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("the call survived the end of its link")
	}
	if _, err := inst.Dial(t.Context()); !errors.Is(err, driver.ErrGone) {
		t.Errorf("dial after stop: err = %v", err)
	}
	<-inst.Done()
	if err := inst.Err(); err != nil {
		t.Errorf("Err = %v", err)
	}
	if err := inst.Stop(t.Context()); err != nil {
		t.Errorf("second stop: %v", err)
	}
}

func TestStopWaitsForStuckCalls(t *testing.T) {
	f := newFixture()
	inst, err := f.driver.Start(t.Context(), driver.Spec{Server: "s", Builtin: "sample", StopGrace: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cs := connect(t, inst, "2025-11-25", nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "stuck"})
	}()
	<-f.entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := inst.Stop(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "calls still run") {
		t.Errorf("stop: err = %v", err)
	}
	select {
	case <-inst.Done():
		t.Error("done while a call runs")
	default:
	}
	close(f.free)
	<-inst.Done()
	<-ended
}

// TestSlowReader has a server that sends without end and a gateway that does
// not read: the server must come to wait, and closing must free it.
func TestSlowReader(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	s := dial(t, inst)
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"flood","arguments":{}}}`,
	} {
		if err := s.WriteFrame(t.Context(), []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	<-f.entered
	l := (*link)(s.(*stream))
	for deadline := time.Now().Add(10 * time.Second); len(l.out) < queued; {
		if time.Now().After(deadline) {
			t.Fatalf("only %d frames wait", len(l.out))
		}
		time.Sleep(time.Millisecond)
	}
	// Reading goes on where it stopped, in order.
	for want := -1; want < 100; {
		b, err := s.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			Method string
			Params struct{ Progress float64 }
		}
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if m.Method != "notifications/progress" {
			continue
		}
		if want++; int(m.Params.Progress) != want {
			t.Fatalf("progress %v, want %d", m.Params.Progress, want)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReadFrame(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("read after close: err = %v", err)
		}
	}
	if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)); !errors.Is(err, errLinkClosed) {
		t.Errorf("write after close: err = %v", err)
	}
}

// TestLastFrames reads what a server said before it was stopped.
func TestLastFrames(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	s := dial(t, inst)
	for _, id := range []string{"1", "2", "3"} {
		if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)); err != nil {
			t.Fatal(err)
		}
	}
	l := (*link)(s.(*stream))
	for deadline := time.Now().Add(10 * time.Second); len(l.out) < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("only %d answers", len(l.out))
		}
	}
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.ReadFrame(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := s.ReadFrame(); !errors.Is(err, io.EOF) {
			t.Errorf("after the last: err = %v", err)
		}
	}
}

// TestWriteHeedsContext writes to a link that nothing reads.
func TestWriteHeedsContext(t *testing.T) {
	s := (*stream)(newLink())
	ping := []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	for range queued {
		if err := s.WriteFrame(t.Context(), ping); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- s.WriteFrame(ctx, ping) }()
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	go func() { failed <- s.WriteFrame(context.Background(), ping) }()
	s.Close()
	if err := <-failed; !errors.Is(err, errLinkClosed) {
		t.Errorf("err = %v", err)
	}
}

func TestBadFrames(t *testing.T) {
	f := newFixture()
	s := dial(t, f.start(t))
	defer s.Close()
	for _, bad := range []string{``, `{`, `null`, `[]`, `"x"`, `{"jsonrpc":"1.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0"}`, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, strings.Repeat("[", 5000)} {
		if err := s.WriteFrame(t.Context(), []byte(bad)); err == nil {
			t.Errorf("%.40q is accepted", bad)
		}
	}
	// The session is as good as before.
	if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":"a","method":"ping"}`)); err != nil {
		t.Fatal(err)
	}
	b, err := s.ReadFrame()
	if err != nil || !bytes.Contains(b, []byte(`"id":"a"`)) {
		t.Errorf("%s, %v", b, err)
	}
}

func TestPanicIsContained(t *testing.T) {
	f := newFixture()
	var logged bytes.Buffer
	inst, err := f.driver.Start(t.Context(), driver.Spec{Server: "s", Builtin: "sample", Log: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	cs := connect(t, inst, "2026-07-28", nil)
	_, err = cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "panic"})
	var we *jsonrpc.Error
	if !errors.As(err, &we) || we.Code != jsonrpc.CodeInternalError {
		t.Errorf("err = %v", err)
	}
	if res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"on"}}); err != nil || text(res) != "on" {
		t.Errorf("after the panic: %v, %v", res, err)
	}
	if err := inst.Leave(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(logged.String(), "the tool is broken") || !strings.Contains(logged.String(), "builtin_test.go") {
		t.Errorf("log = %s", logged.String())
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
	if info := f.driver.Info(); info.Name != Name || info.Adopts {
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

func TestConcurrentStop(t *testing.T) {
	f := newFixture()
	inst := f.start(t)
	connect(t, inst, "2025-11-25", nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := inst.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if l, err := inst.Dial(t.Context()); err == nil {
				l.Stream.Close()
			}
		})
	}
	wg.Wait()
}

func BenchmarkCall(b *testing.B) {
	f := newFixture()
	inst, err := f.driver.Start(b.Context(), driver.Spec{Server: "s", Builtin: "sample"})
	if err != nil {
		b.Fatal(err)
	}
	defer inst.Stop(context.Background())
	l, err := inst.Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	c := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	cs, err := c.Connect(b.Context(), frames{l.Stream}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer cs.Close()
	for b.Loop() {
		if _, err := cs.CallTool(b.Context(), &mcp.CallToolParams{Name: "echo", Arguments: echoArgs{"x"}}); err != nil {
			b.Fatal(err)
		}
	}
}
