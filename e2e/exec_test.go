//go:build linux && (amd64 || arm64)

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// execCell is a gateway with a server in a sandbox and one without walls, which see the
// same workspace.
func execCell(t *testing.T) *cell {
	t.Helper()
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	return startCell(t, "servers:\n"+yamlSand(t, nil, "workspace: true")+yamlServer("plain", program, nil, "workspace: true", "fork: fresh"))
}

// runBeside runs a script beside a server of a session.
func runBeside(ctx context.Context, c *client.Client, session, server, script string, more ...func(*api.ExecRequest)) (string, *api.ExecEvent, error) {
	in := api.ExecRequest{Server: server, Argv: []string{"sh", "-c", script}}
	for _, m := range more {
		m(&in)
	}
	var out bytes.Buffer
	end, err := c.Exec(ctx, session, in, &out, &out)
	return out.String(), end, err
}

// marked are the processes of this machine that have a text among their arguments.
func marked(text string) (n int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(text)) {
			n++
		}
	}
	return n
}

// TestExec runs commands beside servers: what one writes into the workspace the other
// reads, a fork has it, and the trajectory tells of it.
func TestExec(t *testing.T) {
	t.Parallel()
	w := execCell(t)
	c := w.client(t)
	id := openSession(t, c, api.NewSession{}).ID
	for _, server := range []string{sand, "plain"} {
		out, end, err := runBeside(t.Context(), c, id, server, `cat; echo "$A" > "`+server+`"; pwd; echo bad >&2; exit 3`, func(in *api.ExecRequest) {
			in.Stdin, in.Env, in.Cwd = "in\n", map[string]string{"A": "from " + server}, "/workspace"
		})
		if err != nil || end.Exit == nil || *end.Exit != 3 || !strings.Contains(out, "in\n") || !strings.Contains(out, "/workspace\n") || !strings.Contains(out, "bad\n") {
			t.Errorf("%s: %q, %+v, %v", server, out, end, err)
		}
	}
	sandShelf.mustPut(t, c, id, "k", "v")
	child := fork(t, c, id, 1)[0].ID
	for _, s := range []string{id, child} {
		for _, server := range []string{sand, "plain"} {
			if out, _, err := runBeside(t.Context(), c, s, server, "cat "+sand+" plain"); err != nil || out != "from sand\nfrom plain\n" {
				t.Errorf("%s in %s reads %q, %v", server, s, out, err)
			}
		}
		sandShelf.mustHold(t, c, s, map[string]string{"k": "v"})
	}
	var seen []string
	for step, err := range c.Trajectory(t.Context(), child) {
		if err != nil {
			t.Fatal(err)
		}
		if step.Type == "exec" {
			seen = append(seen, fmt.Sprintf("%s %s %s", step.Server, step.Name, step.Outcome))
		}
	}
	if got := strings.Join(seen, ", "); got != "sand sh tool, plain sh tool, sand sh ok, plain sh ok" {
		t.Errorf("the trajectory tells of %s", got)
	}
	// The command line exits as the command did, and with 125 where it did not run to its end.
	for _, one := range []struct {
		code   int
		prints string
		args   []string
	}{
		{7, "\"stdout64\": \"/2E=\"", []string{"--json", "--", "sh", "-c", `printf '\377a'; exit 7`}},
		{128 + 9, "", []string{"--", "sh", "-c", "kill -9 $$"}},
		{124, "", []string{"--timeout", "1ms", "--", "sleep", "60"}},
		{125, "\"stdout\": \"y\\ny", []string{"--json", "--max-output", "9", "--", "yes"}},
		{125, "", []string{"--", "no-such-program"}},
		{125, "", []string{"--", "/etc"}},
		{125, "", []string{"--no-such-flag", "--", "true"}},
		{125, "", []string{"true"}},
	} {
		for _, server := range []string{sand, "plain"} {
			out, err := exec.CommandContext(t.Context(), tineBinary, append([]string{"session", "exec", "--state", w.state(), id, server}, one.args...)...).Output()
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != one.code || !strings.Contains(string(out), one.prints) {
				t.Errorf("%s %q: %q, %v, want exit code %d", server, one.args, out, err, one.code)
			}
		}
	}
	_, _, err := runBeside(t.Context(), c, id, sand, "", func(in *api.ExecRequest) { in.Argv = []string{"/etc"} })
	if e := new(api.Error); !errors.As(err, &e) || e.Kind != api.KindInvalid {
		t.Errorf("a folder is run: %v", err)
	}
	// It is killed when its time is over, when its caller leaves and when it writes too much.
	mark := fmt.Sprintf("4%d", time.Now().UnixNano()%1e9)
	stubborn := `trap "" TERM; setsid sleep ` + mark + ` & sleep ` + mark + ` & echo on; sleep ` + mark
	for _, server := range []string{sand, "plain"} {
		if out, end, err := runBeside(t.Context(), c, id, server, stubborn, func(in *api.ExecRequest) { in.Timeout = "1s" }); err != nil || !end.Timeout || out != "on\n" {
			t.Errorf("%s: timeout: %q, %+v, %v", server, out, end, err)
		}
		ctx, leave := context.WithCancel(t.Context())
		_, err := c.Exec(ctx, id, api.ExecRequest{Server: server, Argv: []string{"sh", "-c", stubborn}}, writerFunc(func([]byte) { leave() }), nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a caller that leaves: %v", server, err)
		}
		_, _, err = runBeside(t.Context(), c, id, server, "yes", func(in *api.ExecRequest) { in.MaxOutput = 1 << 20 })
		if e := new(api.Error); !errors.As(err, &e) || !strings.Contains(e.Message, "more than 1048576 bytes") {
			t.Errorf("%s: too much: %v", server, err)
		}
		leftInside(t, c, id, server, mark)
	}
	w.over(t)
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// leftInside waits until no process with a text among its arguments is seen beside a
// server, zombies apart.
func leftInside(t *testing.T, c *client.Client, id, server, mark string) {
	t.Helper()
	err := eventually(func() error {
		out, _, err := runBeside(t.Context(), c, id, server, `grep -alE "`+mark[:3]+`[`+mark[3:4]+`]`+mark[4:]+`" /proc/[0-9]*/cmdline 2>/dev/null | wc -l`)
		if err == nil && strings.TrimSpace(out) != "0" {
			err = fmt.Errorf("%s: left are %s", server, out)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestExecGatewayKilled kills the gateway while commands run: nothing of them is left, and
// the session goes on with all that its server had in memory.
func TestExecGatewayKilled(t *testing.T) {
	t.Parallel()
	w := execCell(t)
	c := w.client(t)
	id := openSession(t, c, api.NewSession{}).ID
	sandShelf.mustPut(t, c, id, "k", "v")
	mark := fmt.Sprintf("5%d", time.Now().UnixNano()%1e9)
	for _, server := range []string{sand, "plain"} {
		on := make(chan struct{}, 1)
		go c.Exec(context.Background(), id, api.ExecRequest{Server: server, Argv: []string{"sh", "-c", "setsid sleep " + mark + " & echo on; sleep " + mark}}, writerFunc(func([]byte) { on <- struct{}{} }), nil)
		<-on
	}
	w.kill()
	if err := eventually(func() error {
		if n := marked("sleep\x00" + mark); n > 0 {
			return fmt.Errorf("%d processes of commands are left", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	c = w.client(t)
	sandShelf.mustHold(t, c, id, map[string]string{"k": "v"})
	leftInside(t, c, id, sand, mark)
	w.over(t)
}
