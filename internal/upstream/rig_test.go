package upstream_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A rig is an Upstream on instances that a test plays itself.
type rig struct {
	*upstream.Upstream
	t testing.TB

	mu     sync.Mutex
	starts int
	events []string // what happened to instances and handles, in order
}

// instance is one that a script runs in.
type instance struct {
	r      *rig
	n      int // 1 is the first
	rope   *rope
	handle driver.Handle
	link   func() (driver.Link, error)

	done    chan struct{}
	ending  sync.Once
	err     error
	unheld  error // why it can't be held
	logs    string
	script  sync.WaitGroup
	stopped atomic.Bool
}

func (r *rig) happened(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, s)
}

func (r *rig) history() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.events, " ")
}

// fakeDriver is a driver of funcs.
type fakeDriver struct {
	memory bool // it carries memories
	hints  driver.Hints
	start  func(context.Context, driver.Spec) (driver.Instance, error)
	adopt  func(context.Context, driver.Handle) (driver.Instance, error)
}

func (d *fakeDriver) Info() driver.Info {
	return driver.Info{Name: "fake", Adopts: true, Memory: d.memory, Hints: d.hints, Mends: driver.Mends{
		Gone: "check servers.ID.url", Locked: "servers.ID.headers must hold it", Moved: "set servers.ID.url to that",
	}}
}

func (d *fakeDriver) Start(ctx context.Context, s driver.Spec) (driver.Instance, error) {
	return d.start(ctx, s)
}

func (d *fakeDriver) Adopt(ctx context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	if d.adopt == nil {
		return nil, driver.ErrGone
	}
	return d.adopt(ctx, h)
}

func (i *instance) Handle() driver.Handle { return i.handle }

func (i *instance) Dial(context.Context) (driver.Link, error) {
	i.r.happened("dial")
	return i.link()
}

func (i *instance) Done() <-chan struct{} { return i.done }
func (i *instance) Err() error            { return i.err }

func (i *instance) Logs(max int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(i.logs[len(i.logs)-int(min(max, int64(len(i.logs)))):])), nil
}

func (i *instance) Stop(context.Context) error {
	if i.stopped.Swap(true) {
		return nil
	}
	i.r.happened("stop")
	i.end(nil)
	i.script.Wait()
	return nil
}

func (i *instance) Hold(context.Context) (func(), error) { return func() {}, i.unheld }

func (i *instance) Leave() error {
	i.r.happened("leave")
	if i.rope != nil {
		i.rope.hang()
	}
	i.script.Wait()
	return nil
}

// end is the instance's death.
func (i *instance) end(err error) {
	i.ending.Do(func() {
		i.err = err
		if i.rope != nil {
			i.rope.hang()
		}
		close(i.done)
	})
}

func (r *rig) newInstance(script func(*instance)) *instance {
	r.mu.Lock()
	r.starts++
	i := &instance{r: r, n: r.starts, rope: newRope(r.t), done: make(chan struct{}), logs: "stderr of an instance"}
	r.mu.Unlock()
	i.handle = driver.Handle{Driver: "fake", Server: "srv", Data: json.RawMessage(`{"pid":1}`)}
	i.link = func() (driver.Link, error) { return driver.Link{Stream: i.rope}, nil }
	i.script.Go(func() { script(i) })
	return i
}

// play makes an Upstream whose every instance runs the script. It is closed
// with the test.
func play(t testing.TB, script func(*instance), change ...func(*upstream.Options)) *rig {
	r := &rig{t: t}
	o := r.options()
	o.Driver = &fakeDriver{start: func(context.Context, driver.Spec) (driver.Instance, error) {
		r.happened("start")
		return r.newInstance(script), nil
	}}
	for _, c := range change {
		c(&o)
	}
	r.Upstream = upstream.New(o)
	t.Cleanup(r.Close)
	return r
}

// timeout is how long a start or a call of a rig may take.
const timeout = 20 * time.Second

func (r *rig) options() upstream.Options {
	log := slog.New(slog.DiscardHandler)
	return upstream.Options{
		Spec: driver.Spec{Server: "srv", Dir: "/instances/srv"},
		Conn: upstream.ConnOptions{
			Server: "srv", Limit: 1 << 20, Log: log,
			Claims: []byte(`{"sampling":{},"elicitation":{}}`), Allowed: []string{"sampling", "elicitation"},
		},
		ConnectTimeout: timeout, CallTimeout: timeout, Log: log,
		Keep: func(h driver.Handle, hello json.RawMessage) error {
			if hello == nil {
				r.happened("keep")
			} else {
				r.happened("keep+hello")
			}
			return nil
		},
		Drop: func() { r.happened("drop") },
	}
}

// shared makes the Upstream one that several sessions use.
func shared(o *upstream.Options) { o.Conn.Shared = true }

// eager starts it with the test.
func eager(o *upstream.Options) { o.Eager = true }

// client is one that calls: what reaches it is kept.
type client struct {
	upstream.Client
	ask func(ctx context.Context, method, params string) upstream.Reply

	mu    sync.Mutex
	notes []string
	asked []string
	heard chan string
}

func newClient(key string) *client {
	return &client{Client: upstream.Client{Key: key}, heard: make(chan string, 1024)}
}

func (c *client) modern() *client { c.Modern = true; return c }

func (c *client) answers(result string) *client {
	c.ask = func(context.Context, string, string) upstream.Reply { return upstream.Reply{Result: []byte(result)} }
	return c
}

func (c *client) Note(method string, params []byte) {
	c.mu.Lock()
	c.notes = append(c.notes, method+" "+string(params))
	c.mu.Unlock()
	c.heard <- method + " " + string(params)
}

func (c *client) Ask(ctx context.Context, method string, params []byte) upstream.Reply {
	c.mu.Lock()
	c.asked = append(c.asked, method+" "+string(params))
	ask := c.ask
	c.mu.Unlock()
	if ask == nil {
		return upstream.Refuse(method, "this client answers nothing")
	}
	return ask(ctx, method, string(params))
}

func (c *client) got() (notes, asked []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.notes...), append([]string(nil), c.asked...)
}

// request is one of the client.
func (c *client) request(t testing.TB, method, params string) *upstream.Request {
	t.Helper()
	p, err := wire.ScanParams(method, []byte(params))
	if err != nil {
		t.Fatalf("params %s: %v", params, err)
	}
	return &upstream.Request{Method: method, Params: p, Name: p.Name(), Client: &c.Client, Peer: c}
}

// does sends a request of the client and returns what came of it as text: the
// result, "error:" and the server's error, or "kind: message".
func (c *client) does(t testing.TB, u upstream.Caller, method, params string) string {
	t.Helper()
	return outcome(u.Call(context.Background(), c.request(t, method, params)))
}

// calls calls a tool.
func (c *client) calls(t testing.TB, u upstream.Caller, tool string) string {
	t.Helper()
	return c.does(t, u, wire.MethodCallTool, `{"name":"`+tool+`"}`)
}

func outcome(res *upstream.Result, err error) string {
	var fail *api.Error
	switch {
	case errors.As(err, &fail):
		return string(fail.Kind) + ": " + fail.Message
	case err != nil:
		return "NOT AN API ERROR: " + err.Error()
	case res == nil:
		return "NO RESULT AND NO ERROR"
	case res.Error != nil:
		return "error:" + string(res.Error)
	}
	return string(res.Result)
}

// later runs a call in the background.
func (c *client) later(t testing.TB, u upstream.Caller, tool string) <-chan string {
	t.Helper()
	out := make(chan string, 1)
	req := c.request(t, wire.MethodCallTool, `{"name":"`+tool+`"}`)
	go func() { out <- outcome(u.Call(context.Background(), req)) }()
	return out
}

func retryable(err error) bool {
	var fail *api.Error
	return errors.As(err, &fail) && fail.Retryable
}
