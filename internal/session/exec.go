package session

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A Command is a program to be run beside a member of a session.
type Command struct {
	Member  string
	Who     string // the principal
	Timeout time.Duration
	driver.Command
	StdinSize int64 // bytes of its input, for the journal
}

// Exec runs a command beside a member of the session, which is started for it as for a
// call. It is inside the session's gate, so that a fork waits for it, and in the journal.
// ID is that of the journal; empty where it is not kept.
func (s *Session) Exec(ctx context.Context, c Command) (exit upstream.Exit, id string, err error) {
	out, errOut := &excerpt{w: c.Stdout}, &excerpt{w: c.Stderr}
	c.Stdout, c.Stderr = out, errOut
	params, err := json.Marshal(map[string]any{"arguments": execArguments{
		Argv: c.Argv, Cwd: c.Cwd, User: c.User, Env: slices.Sorted(maps.Keys(c.Env)), Stdin: c.StdinSize, Timeout: c.Timeout.String(),
	}})
	if err != nil {
		return exit, "", err
	}
	req := &upstream.Request{Method: driver.MethodExec, Name: c.Argv[0], Who: c.Who, Params: wire.Params{Raw: params}}
	err = s.act(ctx, c.Member, "exec", req, func(ctx context.Context, up *upstream.Upstream) ([]byte, error) {
		var err error
		if exit, err = up.Exec(ctx, req, c.Command, c.Timeout); err != nil {
			return nil, err
		}
		return json.Marshal(execResult{
			Exit: exit.Code, Signal: exit.Signal, TimedOut: exit.TimedOut, Failed: exit.Code != 0 || exit.Signal != "" || exit.TimedOut,
			Stdout: out.text(), StdoutBytes: out.size, Stderr: errOut.text(), StderrBytes: errOut.size,
		})
	})
	return exit, req.Call, err
}

// execArguments and execResult are what the journal has of a command. Values of the
// environment and the input may be secret.
type execArguments struct {
	Argv    []string `json:"argv"`
	Cwd     string   `json:"cwd,omitempty"`
	User    string   `json:"user,omitempty"`
	Env     []string `json:"env,omitempty"`
	Stdin   int64    `json:"stdin_bytes,omitempty"`
	Timeout string   `json:"timeout"`
}

type execResult struct {
	Exit        int    `json:"exit"`
	Signal      string `json:"signal,omitempty"`
	TimedOut    bool   `json:"timeout,omitempty"`
	Failed      bool   `json:"isError,omitempty"` // as of a tool
	Stdout      string `json:"stdout,omitempty"`
	StdoutBytes int64  `json:"stdout_bytes,omitempty"`
	Stderr      string `json:"stderr,omitempty"`
	StderrBytes int64  `json:"stderr_bytes,omitempty"`
}

// act does something to a member besides its calls: inside the gate, and in the journal.
func (s *Session) act(ctx context.Context, member, what string, req *upstream.Request, do func(ctx context.Context, up *upstream.Upstream) ([]byte, error)) (err error) {
	e, err := s.alone(member, what)
	if err != nil {
		return err
	}
	in, err := s.In(member)
	if err != nil {
		return err
	}
	defer in.InUse()()
	req.Session = in.ID
	made, outside := false, ctx
	defer func() {
		if err != nil && !made {
			err = upstream.NotSent(err)
			e.NotMade(outside, req, err)
		}
	}()
	ctx, leave, err := in.Enter(ctx, e.ID, what)
	if err != nil {
		return err
	}
	defer leave()
	up, _, err := s.Upstream(e.ID)
	if err != nil {
		return err
	}
	made = true
	_, err = e.Governor.Record.Wrap(e.ID, callerFunc(func(ctx context.Context, _ *upstream.Request) (*upstream.Result, error) {
		b, err := do(ctx, up)
		if err != nil {
			return nil, err
		}
		return &upstream.Result{Result: b}, nil
	})).Call(ctx, req)
	return err
}

type callerFunc func(context.Context, *upstream.Request) (*upstream.Result, error)

func (f callerFunc) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	return f(ctx, req)
}

// alone finds a member that the session has for itself.
func (s *Session) alone(member, what string) (*catalog.Entry, error) {
	e := s.Catalog().Entry(member)
	if e == nil {
		return nil, &api.Error{Kind: api.KindInvalid, Server: member, Message: fmt.Sprintf("session %s has no server %q", s.ID, member)}
	}
	no := func(why string) error {
		return &api.Error{Kind: api.KindRefused, Server: member, Status: http.StatusConflict, Message: fmt.Sprintf("server %q: %s", member, why)}
	}
	if on, why := e.On(); !on {
		return nil, no("it is off: " + why)
	}
	switch {
	case !e.Own():
		return nil, no(fmt.Sprintf("all sessions share it, and %s is for what is the session's own; set servers.%s.scope to session", what, e.Base()))
	case e.Fork == config.ForkShare:
		return nil, no(fmt.Sprintf("the session shares it with its forks, and %s is for what is the session's own; change servers.%s.fork", what, e.Base()))
	}
	return e, nil
}

// RunsCommands is the error of a member beside which no command can be run.
func (s *Session) RunsCommands(member string) error {
	e, err := s.alone(member, "exec")
	if err != nil {
		return err
	}
	if e.Info().Commands {
		return nil
	}
	why := fmt.Sprintf("driver %q runs no commands beside a server; process, sandbox and docker do", e.Driver)
	switch {
	case e.Builtin != "" && e.Front == "":
		why = "it is built into the gateway, and there is nothing that a command could run in"
	case e.URL != "":
		why = "it runs elsewhere, at its URL, where no command can be run"
	}
	return &api.Error{Kind: api.KindInvalid, Server: member, Status: http.StatusConflict, Message: fmt.Sprintf("server %q: %s", member, why)}
}

// excerptHalf is how much the journal keeps of the beginning of an output, and of its end.
const excerptHalf = 16 << 10

// An excerpt passes an output on, and keeps its beginning and its end.
type excerpt struct {
	w    io.Writer
	size int64
	head []byte
	tail []byte
}

func (e *excerpt) Write(b []byte) (int, error) {
	e.size += int64(len(b))
	rest := b
	if room := excerptHalf - len(e.head); room > 0 {
		n := min(room, len(rest))
		e.head, rest = append(e.head, rest[:n]...), rest[n:]
	}
	if len(rest) > excerptHalf {
		rest = rest[len(rest)-excerptHalf:]
	}
	if over := len(e.tail) + len(rest) - excerptHalf; over > 0 {
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
	e.tail = append(e.tail, rest...)
	if e.w == nil {
		return len(b), nil
	}
	return e.w.Write(b)
}

func (e *excerpt) text() string {
	text := string(e.head)
	if left := e.size - int64(len(e.head)+len(e.tail)); left > 0 {
		text += fmt.Sprintf("\n[%d bytes left out]\n", left)
	}
	return strings.ToValidUTF8(text+string(e.tail), "\uFFFD")
}
