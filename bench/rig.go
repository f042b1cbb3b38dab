package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// startTimeout bounds how long a process may take until it can be called.
const startTimeout = 30 * time.Second

// rig is everything that runs for a measurement: the processes, the links that
// are kept over the rounds, and a folder for what they write.
type rig struct {
	settings settings
	dir      string
	self     string
	lines    *lifelines
	launcher *launcher
	procs    []*process // in the order of their start
	links    []*stdioLink
	issuer   *issuertest.Issuer // of the rows with auth; nil before the first
	guarded  bool               // somebody ends what outlives a gateway that is killed with us
}

func newRig(s settings) (*rig, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the harness's own binary: %w", err)
	}
	dir, err := os.MkdirTemp("", "tine-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for logs and state: %w", err)
	}
	lines, err := listenLifelines()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &rig{settings: s, dir: dir, self: self, lines: lines, launcher: newLauncher()}, nil
}

// close ends everything, what stands in front first.
func (g *rig) close() error {
	for _, p := range slices.Backward(g.procs) {
		p.stop()
	}
	g.lines.close()
	for _, l := range g.links {
		l.close()
	}
	g.launcher.close()
	if g.issuer != nil {
		g.issuer.Close()
	}
	return os.RemoveAll(g.dir)
}

func (g *rig) roleArgs(kind, tag string, more ...string) []string {
	return append([]string{roleCommand, "--kind", kind, "--tag", tag, "--lifeline", g.lines.addr()}, more...)
}

// role starts one of our own processes and waits until it is ready.
func (g *rig) role(ctx context.Context, kind, tag string, piped bool, more ...string) (*process, hello, error) {
	p, err := launch(g.launcher, g.dir, tag, piped, g.self, g.roleArgs(kind, tag, more...)...)
	if err != nil {
		return nil, hello{}, err
	}
	g.procs = append(g.procs, p)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, release := p.alive(ctx)
	defer release()
	h, err := g.lines.wait(ctx, tag)
	if err != nil {
		return nil, hello{}, p.explain(err)
	}
	return p, h, nil
}

// assemble starts what the rows need and connects the rows to it.
func (g *rig) assemble(ctx context.Context, rows []*row) error {
	groups := map[string][]*row{}
	for _, r := range rows {
		groups[r.Group] = append(groups[r.Group], r)
	}
	for _, era := range []string{legacyEra, statelessEra} {
		if len(groups[era]) > 0 {
			if err := g.assembleHTTP(ctx, era, groups[era]); err != nil {
				return err
			}
		}
	}
	return g.assembleStdio(ctx, groups[stdioGroup])
}

func (g *rig) assembleHTTP(ctx context.Context, era string, rows []*row) error {
	kind := "echo-stateful"
	if era == statelessEra {
		kind = "echo-stateless"
	}
	echo, at, err := g.role(ctx, kind, "echo-"+era, false)
	if err != nil {
		return err
	}
	upstream := "http://" + at.Addr
	var gate *gatewayProcess // the group's; both of its rows use it
	for _, r := range rows {
		url, tool, middle, bearer := upstream+"/mcp", toolName, 0, ""
		switch r.Name {
		case rowRelay, rowProxy:
			p, at, err := g.role(ctx, r.Name, r.Name+"-"+era, false, "--upstream", upstream)
			if err != nil {
				return err
			}
			url, middle = "http://"+at.Addr+"/mcp", p.pid()
		case rowTine, rowMerged:
			if gate == nil {
				if gate, err = g.serveTine(ctx, "tine-"+era, oneServer(serverEntry{URL: url})); err != nil {
					return err
				}
			}
			middle = gate.pid()
			if url = gate.url + "/mcp/" + serverName; r.Name == rowMerged {
				url, tool = gate.url+"/mcp", serverName+"__"+toolName
			}
		case rowOff:
			p, err := g.serveTine(ctx, r.Name+"-"+era, oneServer(allOff(url)))
			if err != nil {
				return err
			}
			url, middle = p.url+"/mcp/"+serverName, p.pid()
		case rowFull:
			p, token, err := g.serveFull(ctx, r.Name+"-"+era, url)
			if err != nil {
				return err
			}
			url, middle, bearer = p.url+"/mcp/"+serverName, p.pid(), token
		}
		r.open = g.dialer(era, url, tool, bearer)
		r.middle = func() int { return middle }
		r.upstream = func() int { return echo.pid() }
		r.opened = func(ctx context.Context) (int, error) { return connections(ctx, upstream) }
	}
	return nil
}

// connections asks a role how many connections it was opened. The question
// goes over the default client's own one, kept alive.
func connections(ctx context.Context, base string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+connectionsPath, nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("count the echo server's connections: %w", err)
	}
	defer res.Body.Close()
	var n int
	if _, err := fmt.Fscan(res.Body, &n); err != nil {
		return 0, fmt.Errorf("count the echo server's connections: %w", err)
	}
	return n, nil
}

func (g *rig) assembleStdio(ctx context.Context, rows []*row) error {
	// A stdio server that Tine starts reports for itself, possibly anew after a
	// restart, so its pid is looked up when it is wanted.
	byTag := func(tag string) func() int {
		return func() int {
			h, _ := g.lines.find(tag)
			return h.PID
		}
	}
	var gate *gatewayProcess
	for _, r := range rows {
		tag := "stdio-echo-" + r.Name
		switch r.Name {
		case rowDirect:
			p, _, err := g.role(ctx, "echo-stdio", tag, true)
			if err != nil {
				return err
			}
			if r.open, err = g.linker(ctx, p, toolName); err != nil {
				return err
			}
			r.middle = func() int { return 0 }
		case rowTine, rowTine2026:
			tag = "stdio-echo-" + rowTine
			if gate == nil {
				var err error
				if gate, err = g.serveTine(ctx, "tine-stdio-upstream", oneServer(g.stdioEntry(tag))); err != nil {
					return err
				}
			}
			era := legacyEra
			if r.Name == rowTine2026 {
				era = statelessEra
			}
			r.open = g.dialer(era, gate.url+"/mcp/"+serverName, toolName, "")
			r.middle = gate.pid
		case rowTineStdio:
			p, err := g.tineStdio("tine-stdio", g.stdioEntry(tag))
			if err != nil {
				return err
			}
			if r.open, err = g.linker(ctx, p, serverName+"__"+toolName); err != nil {
				return err
			}
			r.middle = p.pid
		}
		r.upstream = byTag(tag)
	}
	return nil
}

// dialer makes HTTP callers, a connection and where the era has them a session
// for each.
func (g *rig) dialer(era, url, tool, bearer string) func(context.Context, int) ([]caller, error) {
	return func(ctx context.Context, n int) ([]caller, error) {
		var callers []caller
		for range n {
			c, err := dialHTTP(ctx, era, url, tool, bearer, g.settings.Payload)
			if err != nil {
				for _, c := range callers {
					c.close()
				}
				return nil, err
			}
			callers = append(callers, c)
		}
		return callers, nil
	}
}

// linker makes callers that share one stdio process for the whole run.
func (g *rig) linker(ctx context.Context, p *process, tool string) (func(context.Context, int) ([]caller, error), error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	l := newStdioLink(p.stdin, p.stdout, tool, g.settings.Payload)
	g.links = append(g.links, l)
	if err := l.handshake(ctx); err != nil {
		return nil, p.explain(err)
	}
	return func(_ context.Context, n int) ([]caller, error) {
		return slices.Repeat([]caller{stdioCaller{l}}, n), nil
	}, nil
}
