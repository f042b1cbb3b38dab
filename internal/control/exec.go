package control

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
)

// Limits of a command.
const (
	execTimeout    = 5 * time.Minute
	maxExecTimeout = 24 * time.Hour
	execOutput     = 64 << 20
	maxExecOutput  = 1 << 40
	maxExecWords   = 128 << 10 // bytes of arguments and environment
)

// Exec runs a command beside a server of a session. What it writes goes to the writers as
// it comes; an error of theirs ends it.
func (c *Sessions) Exec(ctx context.Context, who identity.Principal, id string, in api.ExecRequest, stdout, stderr io.Writer) (exit upstream.Exit, call string, err error) {
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return exit, "", err
	}
	member := strings.TrimSuffix(in.Server, "~0")
	if err := c.mayExec(who, s, member, "exec"); err != nil {
		return exit, "", err
	}
	cmd, err := commandOf(in)
	if err != nil {
		return exit, "", err
	}
	cmd.Member, cmd.Who = member, who.Name
	if err := s.RunsCommands(member); err != nil {
		return exit, "", err
	}
	most := in.MaxOutput
	if most == 0 {
		most = execOutput
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &bounded{left: most, cancel: func() {
		cancel(&api.Error{Kind: api.KindInvalid, Server: member, Status: http.StatusUnprocessableEntity, Message: fmt.Sprintf(
			"server %q: the command was killed because it wrote more than %d bytes; give max_output, or have it write to a file", member, most)})
	}}
	cmd.Stdout, cmd.Stderr = &boundedWriter{b, stdout}, &boundedWriter{b, stderr}
	exit, call, err = s.Exec(ctx, *cmd)
	return exit, call, access.Unnamed(who, err)
}

// mayExec refuses a principal that may not run commands beside a member, or copy its
// files. Where there are no walls around a server this needs the role of an operator, or a
// rule that says so: what is done there is done as the gateway's own user.
func (c *Sessions) mayExec(who identity.Principal, s *session.Session, member, what string) error {
	base := access.Base(member)
	e := s.Catalog().Entry(member)
	if e == nil || !access.Starts(who, member) {
		return NoServer(member)
	}
	may, ruled := who.MayExec(base)
	if !may {
		return &api.Error{
			Kind: api.KindRefused, Server: member, Status: http.StatusForbidden,
			Message: fmt.Sprintf("server %q: no rule lets you use %s there; exec: [%s] in a rule of auth.rules would", member, what, base),
		}
	}
	if info := e.Info(); !ruled && info.Commands && !info.Walls && !who.Is(api.RoleOperator) {
		return &api.Error{
			Kind: api.KindRefused, Server: member, Status: http.StatusForbidden,
			Message: fmt.Sprintf("server %q runs without walls, as the gateway's own user, so that %s there needs the role %s, or exec: [%s] in a rule of auth.rules; or run it with sandbox: true", member, what, api.RoleOperator, base),
		}
	}
	return nil
}

// commandOf checks a request.
func commandOf(in api.ExecRequest) (*session.Command, error) {
	words := 0
	bad := func(s string) bool {
		words += len(s) + 1
		return strings.ContainsRune(s, 0) || !utf8.ValidString(s)
	}
	if len(in.Argv) == 0 || in.Argv[0] == "" {
		return nil, Invalid("argv must name a program, as in [\"ls\", \"-l\"]; no shell is involved")
	}
	for i, a := range in.Argv {
		if bad(a) {
			return nil, Invalid("argv[%d] has a zero byte in it, or is not UTF-8", i)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Env)) {
		if name == "" || strings.Contains(name, "=") || bad(name) || bad(in.Env[name]) {
			return nil, Invalid("env: %q is no variable: a name has no = in it, and no zero byte is in either", Clip(name))
		}
	}
	switch {
	case words > maxExecWords:
		return nil, Invalid("argv and env have %d bytes, and %d is the most; use stdin", words, maxExecWords)
	case bad(in.Cwd) || bad(in.User):
		return nil, Invalid("cwd and user must be UTF-8 without zero bytes")
	case in.Stdin != "" && len(in.Stdin64) > 0:
		return nil, Invalid("stdin and stdin64 are both given; give one")
	case in.MaxOutput < 0 || in.MaxOutput > maxExecOutput:
		return nil, Invalid("max_output must be a number of bytes up to %d", int64(maxExecOutput))
	}
	cmd := &session.Command{Timeout: execTimeout, Command: driver.Command{Argv: in.Argv, Env: in.Env, Cwd: in.Cwd, User: in.User}}
	if in.Timeout != "" {
		var err error
		if cmd.Timeout, err = time.ParseDuration(in.Timeout); err != nil || cmd.Timeout <= 0 || cmd.Timeout > maxExecTimeout {
			return nil, Invalid("timeout must be a length of time such as 90s, above 0 and at most %s; %q is not", maxExecTimeout, Clip(in.Timeout))
		}
	}
	if input := in.Stdin + string(in.Stdin64); input != "" {
		cmd.Stdin, cmd.StdinSize = strings.NewReader(input), int64(len(input))
	}
	return cmd, nil
}
