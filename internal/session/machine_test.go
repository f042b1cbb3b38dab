package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// A machine is where instances live. It outlives the gateways of a test, as a
// real one does.
type machine struct {
	stopping func(server string) error // is asked before an instance is ended; may be nil
	t        *testing.T
	adopts   bool
	loses    bool // states may be gone at a start
	scopes   []string

	// disk is held for reading while something on it is changed, and for
	// writing while it is copied as a crash leaves it.
	disk sync.RWMutex

	mu     sync.Mutex
	gen    int // how many gateways have crashed
	procs  map[int]*proc
	starts map[string]int // by server
	swept  []string       // folders that a sweep was told to keep, joined
	faults []*fault
	points []string // everything that was done, in order
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, adopts: true, procs: map[int]*proc{}, starts: map[string]int{}}
}

// proc is one running server: tools/call answers with its pid, and the tool
// "wait" does so when it is told to.
type proc struct {
	m    *machine
	kind string // its driver
	pid  int
	spec driver.Spec
	held chan struct{} // held while it is kept quiet, or a message is read

	mu         sync.Mutex
	state      map[string]string
	handshakes []string // params of initialize
	waiting    chan struct{}
	release    chan struct{}
	done       chan struct{}
	stopped    bool
	link       *link
}

// desk is one gateway's driver on the machine. What a dead gateway still asks
// for has no effect.
type desk struct {
	m    *machine
	gen  int
	kind string // process or builtin
}

func (d *desk) Info() driver.Info {
	if d.kind == "builtin" {
		return driver.Info{Name: d.kind, Light: true}
	}
	return driver.Info{Name: d.kind, Adopts: d.m.adopts, Scopes: d.m.scopes}
}

func (d *desk) Start(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	m := d.m
	if spec.Command == "missing" {
		return nil, errors.New(`command "missing" not found on PATH`)
	}
	if err := m.at(ctx, d.gen, "start "+spec.Server); err != nil {
		return nil, err
	}
	state, err := loadState(spec.State)
	if err != nil {
		return nil, err
	}
	carries, _ := d.Carries(spec)
	m.mu.Lock()
	if m.gen != d.gen {
		m.mu.Unlock()
		return nil, errDead
	}
	for _, p := range m.procs {
		if spec.State != "" && p.spec.State == spec.State && !p.over() && carries != driver.CarryNone {
			m.t.Errorf("two instances of %s work on one state", spec.Server)
		}
	}
	m.starts[spec.Server]++
	p := &proc{
		m: m, kind: d.kind, pid: 100 + len(m.procs), spec: spec, state: state, held: make(chan struct{}, 1),
		waiting: make(chan struct{}, 64), release: make(chan struct{}), done: make(chan struct{}),
	}
	m.procs[p.pid] = p
	m.mu.Unlock()
	if err := m.at(ctx, d.gen, "started "+spec.Server); err != nil {
		if !errors.Is(err, errDead) {
			p.kill()
		}
		return nil, err
	}
	return &instance{proc: p, gen: d.gen}, nil
}

func (d *desk) Adopt(_ context.Context, h driver.Handle, _ *slog.Logger) (driver.Instance, error) {
	var pid int
	if err := json.Unmarshal(h.Data, &pid); err != nil {
		return nil, err
	}
	m := d.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gen != d.gen {
		return nil, errDead
	}
	p := m.procs[pid]
	if p == nil || p.over() {
		return nil, fmt.Errorf("pid %d: %w", pid, driver.ErrGone)
	}
	return &instance{proc: p, gen: d.gen}, nil
}

func (d *desk) Sweep(_ context.Context, root string, known map[string]bool) ([]string, error) {
	m := d.m
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept, gone []string
	for _, p := range m.procs {
		if p.over() || p.kind != d.kind || !strings.HasPrefix(p.spec.Dir, root) {
			continue
		}
		if known[p.spec.Dir] {
			kept = append(kept, p.spec.Server)
			continue
		}
		gone = append(gone, p.spec.Dir)
		p.kill()
	}
	slices.Sort(kept)
	if d.kind == "process" {
		m.swept = append(m.swept, strings.Join(kept, " "))
	}
	return gone, nil
}

// crash cuts every link and makes the gateway that had them powerless.
func (m *machine) crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gen++
	for _, p := range m.procs {
		p.mu.Lock()
		if p.link != nil {
			_ = p.link.Close()
		}
		p.mu.Unlock()
		if p.kind == "builtin" {
			p.kill() // it was inside
		}
	}
}

// running lists what runs, by server, in order.
func (m *machine) running() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for _, p := range m.procs {
		if !p.over() {
			out = append(out, p.spec.Server)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// one returns the one running instance of a server.
func (m *machine) one(server string) *proc {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var found *proc
	for _, p := range m.procs {
		if p.spec.Server == server && !p.over() {
			if found != nil {
				m.t.Fatalf("there are two instances of %s", server)
			}
			found = p
		}
	}
	if found == nil {
		m.t.Fatalf("there is no instance of %s", server)
	}
	return found
}

func (p *proc) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *proc) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.done)
	}
}

func (p *proc) hello() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.handshakes)
}

// say sends a line to the linked gateway.
func (p *proc) say(line string) {
	p.mu.Lock()
	l := p.link
	p.mu.Unlock()
	l.in <- []byte(line)
}

// instance is one gateway's hold on a proc.
type instance struct {
	*proc
	gen   int
	links sync.WaitGroup
}

// crashed reports whether the gateway of this hold is dead. What it still does
// here must have no effect.
func (i *instance) crashed() bool {
	i.m.mu.Lock()
	defer i.m.mu.Unlock()
	return i.gen != i.m.gen
}

func (i *instance) Handle() driver.Handle {
	return driver.Handle{Driver: i.kind, Server: i.spec.Server, Session: i.spec.Session, Dir: i.spec.Dir, Data: json.RawMessage(fmt.Sprint(i.pid))}
}

func (i *instance) Dial(context.Context) (driver.Link, error) {
	l := &link{in: make(chan []byte, 64), out: make(chan []byte, 64), shut: make(chan struct{}), proc: i.proc}
	i.mu.Lock()
	i.link = l
	i.mu.Unlock()
	i.links.Go(func() { i.serve(l) })
	return driver.Link{Stream: l}, nil
}

func (i *instance) Done() <-chan struct{} { return i.done }
func (i *instance) Err() error            { return nil }
func (i *instance) Logs(int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

func (i *instance) Stop(context.Context) error {
	if stopping := i.m.stopping; stopping != nil {
		if err := stopping(i.spec.Server); err != nil {
			return err
		}
	}
	if !i.crashed() {
		i.kill()
	}
	i.links.Wait()
	return nil
}

func (i *instance) Hold(ctx context.Context) (func(), error) {
	select {
	case i.held <- struct{}{}:
		return sync.OnceFunc(func() { <-i.held }), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (i *instance) Leave() error {
	if !i.m.adopts || i.kind == "builtin" {
		return i.Stop(context.Background())
	}
	i.mu.Lock()
	l := i.link
	i.mu.Unlock()
	if l != nil && !i.crashed() {
		_ = l.Close()
	}
	i.links.Wait()
	return nil
}

func (p *proc) serve(l *link) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		var b []byte
		select {
		case b = <-l.out:
		case <-l.shut:
			return
		case <-p.done:
			return
		}
		select {
		case p.held <- struct{}{}: // not while it is held
			<-p.held
		case <-l.shut:
			return
		case <-p.done:
			return
		}
		m, err := wire.Scan(b)
		if err != nil {
			p.m.t.Errorf("instance %d got %q: %v", p.pid, b, err)
			continue
		}
		reply := func(result string) {
			select {
			case l.in <- wire.AppendResult(nil, m.ID, []byte(result)):
			case <-l.shut:
			case <-p.done:
			}
		}
		switch {
		case !m.IsRequest():
		case m.Method == wire.MethodDiscover:
			select {
			case l.in <- wire.AppendFailure(nil, m.ID, []byte(`{"code":-32601,"message":"no"}`)):
			case <-l.shut:
			}
		case m.Method == wire.MethodInitialize:
			p.mu.Lock()
			p.handshakes = append(p.handshakes, string(m.Params))
			p.mu.Unlock()
			reply(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}`)
		case wire.FindString(m.Params, "name") == "wait":
			calls.Go(func() {
				p.waiting <- struct{}{}
				select {
				case <-p.release:
					reply(fmt.Sprintf(`{"pid":%d}`, p.pid))
				case <-l.shut:
				case <-p.done:
				}
			})
		case m.Method == wire.MethodCallTool && wire.FindString(m.Params, "name") != "x":
			reply(p.tool(m.Params))
		default:
			reply(fmt.Sprintf(`{"pid":%d}`, p.pid))
		}
	}
}

// link is a driver.Stream.
type link struct {
	in, out chan []byte
	shut    chan struct{}
	once    sync.Once
	proc    *proc
}

func (l *link) ReadFrame() ([]byte, error) {
	select {
	case b := <-l.in:
		return b, nil
	case <-l.proc.done:
		return nil, io.EOF
	case <-l.shut:
		return nil, os.ErrClosed
	}
}

func (l *link) WriteFrame(ctx context.Context, b []byte) error {
	select {
	case l.out <- slices.Clone(b):
		return nil
	case <-l.proc.done:
		return io.ErrClosedPipe
	case <-l.shut:
		return os.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.shut) })
	return nil
}
