// Package rlm is the built-in MCP server "rlm": a Python kernel for language models,
// with tools to run code in it, to put files of the host into its variables and to look
// at them. It is a front; its body is the kernel, which a driver runs in a sandbox, a
// container or as a process.
package rlm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/native/settings"
	"github.com/tine-mcp/tine/internal/wire"
)

// Env is what a front is made with.
type Env struct {
	Server   string
	Session  string // whose kernel it is; empty where all share it
	Settings map[string]any
	Body     *driver.Body // the kernel; nil where the server is only asked what it lists
	// Private are files and folders of the host that are never read; nil for none.
	Private func() []string
	Log     *slog.Logger
}

// Settings of the server.
type Settings struct {
	// AllowRead are files and folders of the host that load may read.
	AllowRead []string `json:"allow_read"`
	// Names is how tools are named in lists: "underscores", as rlm_exec, or "dots", as
	// rlm.exec. Both can be called.
	Names string `json:"names"`
	// Output is how many characters of a result are given back.
	Output int `json:"output"`
	// Reseed is whether the random generators of a copy begin anew.
	Reseed bool `json:"reseed"`
	// Save is how long after a change the variables are saved.
	Save settings.Duration `json:"save"`
	// Python is the interpreter, which the config has read.
	Python string `json:"python"`
}

// Bounds of Settings.Output. The default stays below 25,000 tokens, which is what
// clients take.
const (
	defaultOutput = 40_000
	leastOutput   = 1_000
	mostOutput    = 1_000_000
)

const (
	underscores = "underscores"
	dots        = "dots"
)

func readSettings(from map[string]any) (Settings, error) {
	s := Settings{Names: underscores, Output: defaultOutput, Reseed: true, Save: settings.Duration(defaultSave)}
	if err := settings.Decode(from, &s); err != nil {
		return s, err
	}
	switch {
	case s.Names != underscores && s.Names != dots:
		return s, fmt.Errorf("settings.names must be %s or %s, not %q", underscores, dots, s.Names)
	case time.Duration(s.Save) < leastSave || time.Duration(s.Save) > mostSave:
		return s, fmt.Errorf("settings.save must be from %s to %s", leastSave, mostSave)
	case s.Output < leastOutput || s.Output > mostOutput:
		return s, fmt.Errorf("settings.output must be %d to %d characters, not %d", leastOutput, mostOutput, s.Output)
	}
	return s, nil
}

// server is one front.
type server struct {
	set    Settings
	env    Env
	kernel *kernel // nil where there is no body

	mu     sync.Mutex
	owed   error // what the next caller is told instead of an answer
	dirty  bool  // there is something to save
	timer  *time.Timer
	closed bool
}

// New makes the front of a kernel, or without a body a server that only lists.
func New(env Env) (*mcp.Server, io.Closer, error) {
	set, err := readSettings(env.Settings)
	if err != nil {
		return nil, nil, err
	}
	s := &server{set: set, env: env}
	if env.Body != nil {
		// It begins with its first use, and this is it.
		ctx, cancel := context.WithTimeout(context.Background(), beginTime)
		defer cancel()
		if err := s.begin(ctx, *env.Body); err != nil {
			return nil, nil, err
		}
	}
	srv := mcp.NewServer(&mcp.Implementation{Name: "rlm", Title: "Python kernel", Version: "1.0.0"}, &mcp.ServerOptions{
		Instructions: instructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	prefix := "rlm_"
	if set.Names == dots {
		prefix = "rlm."
	}
	s.addTools(srv, prefix)
	srv.AddReceivingMiddleware(anyName(prefix))
	return srv, s, nil
}

// beginTime is how long a kernel may take to answer for the first time.
const beginTime = 60 * time.Second

// begin connects to the kernel.
func (s *server) begin(ctx context.Context, body driver.Body) (err error) {
	if s.kernel, err = connect(ctx, body.Stream, body.Fresh, s.ask); err != nil {
		return err
	}
	if body.Copy && s.set.Reseed {
		if err = s.ask1(ctx, map[string]any{"op": "reseed", "seed": rand.Uint64()}, nil); err != nil {
			err = fmt.Errorf("reseed the random generators: %w", err)
		}
	}
	if err == nil {
		err = s.meet(ctx, body.Fresh)
	}
	if err != nil {
		return errors.Join(err, s.kernel.Close())
	}
	every := healthEvery
	s.kernel.asking.Go(func() { s.kernel.watch(every, s.env.Log) })
	return nil
}

// ask answers what code asks of the host.
func (s *server) ask(context.Context, event) (any, error) {
	return nil, errors.New("there is no language model here")
}

// anyName lets a tool be called by each of its names: rlm_exec, rlm.exec, exec.
func anyName(prefix string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if call, ok := req.(*mcp.CallToolRequest); ok && call.Params != nil {
				name := strings.TrimLeft(strings.TrimPrefix(call.Params.Name, "rlm"), "_.")
				if slices.ContainsFunc(tools, func(t tool) bool { return t.name == name }) {
					call.Params.Name = prefix + name
				}
			}
			return next(ctx, method, req)
		}
	}
}

// Edition is a digest of what the server lists.
func Edition() string {
	sum := sha256.New()
	fmt.Fprintln(sum, instructions)
	for _, t := range tools {
		schema, _ := json.Marshal(t.schema)
		fmt.Fprintf(sum, "%s\n%s\n%s\n", t.name, t.description, schema)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// failure says what went wrong and whose failure it is.
func failure(err error) *mcp.CallToolResult {
	e := &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
	errors.As(err, &e)
	return &mcp.CallToolResult{
		IsError: true,
		Meta:    mcp.Meta{wire.MetaTineError: e},
		Content: []mcp.Content{&mcp.TextContent{Text: e.Message}},
	}
}

func invalid(format string, args ...any) error {
	return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf(format, args...)}
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
