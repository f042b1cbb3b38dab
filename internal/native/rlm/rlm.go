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
	"os"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
	"github.com/tine-mcp/tine/internal/wire"
)

// Env is what a front is made with.
type Env struct {
	Server   string
	Session  string // whose kernel it is; empty where all share it
	Settings map[string]any
	Body     *driver.Body // the kernel; nil where the server is only asked what it lists
	// Models are what all servers of this gateway share; nil for no language models.
	Models *Models
	// Private are files and folders of the host that are never read; nil for none.
	Private func() []string
	// Readable are the files and folders that load of a server may read by the config that
	// holds now: the settings may be of an earlier one; nil for no such bound.
	Readable func(server string) []string
	// Denied reports whether a file that was opened may not be read; nil for none.
	Denied func(*os.File) bool
	// Flags are the flags that settings are set by, by the name of the setting; nil where
	// that is done in a config.
	Flags map[string]string
	// SaveAtEnd has variables saved when the kernel ends in order, also where its memory is
	// kept: a change of the system makes that memory useless.
	SaveAtEnd bool
	// Note is told with the first result; empty for nothing to tell.
	Note string
	// Anew says whether a kernel begins anew because its memory could not be used; nil where
	// callers were told of that.
	Anew func() bool
	// Left says whether the client has left, so that nobody hears of code that is interrupted;
	// nil where that is not known.
	Left func() bool
	Log  *slog.Logger
}

// server is one front.
type server struct {
	set    body.Settings
	env    Env
	models *models
	kernel *kernel       // nil where there is no body
	saving chan struct{} // held by who saves

	mu      sync.Mutex
	note    string // told with the next result; empty for nothing to tell
	owed    error  // what the next caller is told instead of an answer
	telling bool   // a caller is being told of a loss
	dirty   bool   // there is something to save
	timer   *time.Timer
	closed  bool
}

// New makes the front of a kernel, or without a body a server that only lists.
func New(env Env) (*mcp.Server, io.Closer, error) {
	set, err := body.ReadSettings(env.Settings)
	if err != nil {
		return nil, nil, err
	}
	s := &server{set: set, env: env, saving: make(chan struct{}, 1), note: env.Note}
	if s.models, err = env.Models.of(env, set); err != nil {
		return nil, nil, err
	}
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
	s.addTools(srv, body.Prefix(set.Names))
	return srv, s, nil
}

// beginTime is how long a kernel may take to answer for the first time.
const beginTime = 60 * time.Second

// begin connects to the kernel.
func (s *server) begin(ctx context.Context, body driver.Body) (err error) {
	if s.kernel, err = connect(ctx, body.Stream, body.Fresh, s.ask); err != nil {
		return err
	}
	s.kernel.left = s.env.Left
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
	if !body.Fresh && !body.Copy {
		// It came back with what it knew when its last client left, whose memory is kept no
		// longer: that is saved before other calls have their turn.
		s.saving <- struct{}{}
		s.kernel.turn <- struct{}{}
		s.kernel.asking.Go(func() {
			err := s.save(context.Background(), s.kernel.held)
			<-s.kernel.turn
			<-s.saving
			s.saved(err)
		})
	}
	every := healthEvery
	s.kernel.asking.Go(func() { s.kernel.watch(every, s.env.Log) })
	return nil
}

// ask answers what code asks of the host.
func (s *server) ask(ctx context.Context, e event) (any, error) {
	return s.models.answer(ctx, e, s.models.budget)
}

// add says how a value is added to a setting that is a list.
func (s *server) add(setting, value string) string {
	if flag := s.env.Flags[setting]; flag != "" {
		return fmt.Sprintf("add %s %s to the arguments of tine rlm", flag, value)
	}
	return fmt.Sprintf("add %s to settings.%s of the server %s", value, setting, s.env.Server)
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
