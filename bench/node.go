package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// nodeGroup is the group of rows about the library in Go.
const nodeGroup = "node"

// aimNode is what a call by a node takes at most, against the SDK's.
const aimNode = 1.03

// nodeCalls is how many calls of each side a round has.
const nodeCalls = 400

// Calls by a node are compared in more, shorter rounds. Then the worst case of the SDK against
// itself is 1.01; in few, long ones it is 1.025.
const (
	shortCalls = 100
	shortTimes = 4 // as many rounds
)

// nodeTrials is every row about the library in Go, in the order of the report.
func nodeTrials() []*trial {
	return []*trial{
		{
			Group: nodeGroup, Name: "call", About: "a node's Call of the echo server over streamable HTTP, and CallTool of the official SDK with a node's limit, against CallTool without one",
			limits: []limit{{"p50", aimNode, false, of(nodeGroup, ratioP50)}}, needs: needNode, run: (*trials).nodeCall,
		},
		{
			Group: nodeGroup, Name: "proxy", About: "a proxy of ten lines, and Tine, before the echo server, against the server itself",
			needs: needNode, run: (*trials).nodeProxy,
		},
	}
}

func needNode(ctx context.Context, _ settings) error {
	_, err := nodeFolder(ctx)
	return err
}

// nodeFolder is where the library's source is.
func nodeFolder(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/tine-mcp/tine").Output()
	if err != nil {
		return "", fmt.Errorf("there is no source of Tine here: %w; run the benchmark in its folder, with Go", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "node"), nil
}

// nodeProgram builds a program of the library.
func (t *trials) nodeProgram(ctx context.Context, name string) (string, error) {
	folder, err := nodeFolder(ctx)
	if err != nil {
		return "", err
	}
	program := filepath.Join(t.g.dir, "node-"+name)
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", folder, "-trimpath", "-o", program, "./internal/"+name).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return program, nil
}

var nodeEras = []struct{ era, role string }{{legacyEra, "echo-stateful"}, {statelessEra, "echo-stateless"}}

// nodeCall times calls in one process, which has both clients.
func (t *trials) nodeCall(ctx context.Context) (out []reading, err error) {
	program, err := t.nodeProgram(ctx, "stopwatch")
	if err != nil {
		return nil, err
	}
	for _, e := range nodeEras {
		_, at, err := t.g.role(ctx, e.role, "node-call-"+e.era, false)
		if err != nil {
			return nil, err
		}
		p, err := launch(t.g.launcher, t.g.dir, "stopwatch-"+e.era, true, program, "http://"+at.Addr+"/mcp")
		if err != nil {
			return nil, err
		}
		t.g.procs = append(t.g.procs, p)
		watch := &driven{p, bufio.NewReader(p.stdout)}
		for _, callers := range t.s.Callers {
			calls := func(op string) timed {
				return func() ([]time.Duration, error) {
					r, err := watch.ask(ctx, map[string]any{"op": op, "count": min(shortCalls, t.s.MaxCalls), "callers": callers, "payload": t.s.Payload})
					return r.NS, err
				}
			}
			to := func(who, op, server string) *side {
				return &side{&series{name: fmt.Sprintf("%s, %s, %d at once", who, e.era, callers), server: server}, calls(op)}
			}
			c := &contest{
				shows: showsTail,
				floor: to("SDK", "sdk", ""),
				ours:  []*side{to("node", "node", nodeGroup), to("SDK with a limit", "sdk-limit", "")},
			}
			got, err := c.rounds(shortTimes * t.s.Rounds)
			if err != nil {
				return nil, err
			}
			out = append(out, got...)
		}
	}
	return out, nil
}

// nodeProxy times calls through what stands before the echo server.
func (t *trials) nodeProxy(ctx context.Context) (out []reading, err error) {
	program, err := t.nodeProgram(ctx, "proxy")
	if err != nil {
		return nil, err
	}
	for _, e := range nodeEras {
		_, at, err := t.g.role(ctx, e.role, "node-proxy-"+e.era, false)
		if err != nil {
			return nil, err
		}
		upstream := "http://" + at.Addr + "/mcp"
		proxy, err := t.listening(ctx, "proxy-"+e.era, program, upstream)
		if err != nil {
			return nil, err
		}
		gate, err := t.g.serveTine(ctx, "node-tine-"+e.era, oneServer(serverEntry{URL: upstream}))
		if err != nil {
			return nil, err
		}
		for _, callers := range t.s.Callers {
			to := func(who, url string) *side {
				return &side{&series{name: fmt.Sprintf("%s, %s, %d at once", who, e.era, callers)}, t.called(ctx, e.era, url, "", callers)}
			}
			c := &contest{
				shows: showsTail,
				floor: to("bare", upstream),
				ours:  []*side{to("node proxy", "http://"+proxy+"/mcp"), to("Tine", gate.url+"/mcp/"+serverName)},
			}
			got, err := c.rounds(t.s.Rounds)
			if err != nil {
				return nil, err
			}
			out = append(out, got...)
		}
	}
	return out, nil
}

// called makes calls of echo with new connections.
func (t *trials) called(ctx context.Context, era, url, bearer string, callers int) timed {
	var ids atomic.Uint64
	return func() ([]time.Duration, error) {
		all, err := t.g.dialer(era, url, toolName, bearer)(ctx, callers)
		if err != nil {
			return nil, err
		}
		defer func() {
			for _, c := range all {
				c.close()
			}
		}()
		n := min(nodeCalls, t.s.MaxCalls)/callers + 1
		times := make([][]time.Duration, callers)
		err = each(ctx, callers, func(ctx context.Context, i int) error {
			for k := range n + n/5 {
				began := time.Now()
				if err := all[i].call(ctx, ids.Add(1)); err != nil {
					return err
				}
				if k >= n/5 { // the first warm up
					times[i] = append(times[i], time.Since(began))
				}
			}
			return nil
		})
		return slices.Concat(times...), err
	}
}

// listening starts a program that listens at its first argument, and returns the
// address when it does.
func (t *trials) listening(ctx context.Context, name, program string, args ...string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	p, err := launch(t.g.launcher, t.g.dir, name, false, program, append([]string{addr}, args...)...)
	if err != nil {
		return "", err
	}
	t.g.procs = append(t.g.procs, p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, release := p.alive(ctx)
	defer release()
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			return addr, c.Close()
		}
		select {
		case <-ctx.Done():
			return "", p.explain(errors.Join(errors.New("it does not listen"), context.Cause(ctx)))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
