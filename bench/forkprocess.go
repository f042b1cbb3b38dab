package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sizeTool is the one tool of the program that has state.
const sizeTool = "size"

// serveState is a program whose state is a directory: it says how many files
// are in it.
func serveState(ctx context.Context, dir string) error {
	s := mcp.NewServer(&mcp.Implementation{Name: "state", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: sizeTool, Description: "Says how many files there are."},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			n, err := countFiles(dir)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strconv.Itoa(n) + " files"}}}, nil, err
		})
	return s.Run(ctx, &mcp.StdioTransport{})
}

func countFiles(dir string) (n int, err error) {
	err = filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	})
	return n, err
}

// stateSize is one size of a program's state.
type stateSize struct {
	server string
	tree   string // what it begins as a copy of
	files  int
	bytes  int64
	parent string // the session that is forked

	bare, fork *series
}

// forkProcess times forks of a session with a program that has state, and in
// turn a copy of the same files and a start of the same program.
func (t *trials) forkProcess(ctx context.Context) ([]reading, error) {
	cp, err := exec.LookPath("cp")
	if err != nil {
		return nil, fmt.Errorf("there is nothing to compare with: %w", err)
	}
	sizes := []*stateSize{{server: "small", files: 1000, bytes: 10e6}, {server: "large", files: 200, bytes: 100e6}}
	servers := map[string]any{}
	for _, s := range sizes {
		s.tree = filepath.Join(t.g.dir, "state-"+s.server)
		if err := makeTree(s.tree, s.files, s.bytes); err != nil {
			return nil, err
		}
		servers[s.server] = map[string]any{
			"command": t.g.self,
			"args":    t.g.roleArgs("state-stdio", "forked-"+s.server, "--state", "${state.data}"),
			"state":   map[string]any{"data": s.tree},
		}
		name := fmt.Sprintf("%s in %d files", sizeName(s.bytes), s.files)
		s.bare, s.fork = &series{name: "cp -a and bare start, " + name}, &series{name: "fork, " + name}
	}
	w, err := t.g.newWorld(ctx, "processes", map[string]any{"servers": servers, "sessions": unbounded()})
	if err != nil {
		return nil, err
	}
	defer w.gate.stop()
	for _, s := range sizes {
		if s.parent, err = w.open(ctx, s.server); err != nil {
			return nil, err
		}
		if err := w.has(ctx, s.parent, s); err != nil {
			return nil, err
		}
	}
	flushDisks()
	for round := range t.s.Rounds {
		for _, s := range sizes {
			turns := []func() error{
				func() error { return t.g.copyAndStart(ctx, cp, s) },
				func() error { return w.forkAndStart(ctx, s) },
			}
			for i := range turns {
				if err := turns[(i+round)%len(turns)](); err != nil {
					return nil, err
				}
			}
		}
	}
	var out [][]*series
	for _, s := range sizes {
		out = append(out, []*series{s.bare, s.fork})
	}
	return compared(out...), nil
}

// has asks the program of a session whether its state is whole.
func (w *world) has(ctx context.Context, session string, s *stateSize) error {
	got, err := w.call(ctx, session, s.server+"__"+sizeTool, struct{}{})
	if err == nil && !strings.Contains(got, fmt.Sprintf(`"%d files"`, s.files)) {
		err = fmt.Errorf("the state should have %d files: %.300s", s.files, got)
	}
	return err
}

// forkAndStart times a fork, which answers when the child's program has.
func (w *world) forkAndStart(ctx context.Context, s *stateSize) error {
	began := time.Now()
	ids, err := w.fork(ctx, s.parent, 1)
	if err != nil {
		return err
	}
	took := time.Since(began)
	child, err := w.client.Session(ctx, ids[0])
	if err != nil {
		return err
	}
	for _, m := range child.Members {
		if m.Server == s.server && !m.Instance {
			return fmt.Errorf("the fork was answered before server %q had started", s.server)
		}
	}
	if err := w.has(ctx, ids[0], s); err != nil {
		return err
	}
	s.fork.add(took)
	s.fork.endRound()
	return w.close(ctx, ids...)
}

// copyAndStart times what anybody would do by hand.
func (g *rig) copyAndStart(ctx context.Context, cp string, s *stateSize) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	to := filepath.Join(g.dir, "copy-"+s.server)
	began := time.Now()
	if out, err := exec.CommandContext(ctx, cp, "-a", s.tree, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the state with cp -a: %w: %s", err, out)
	}
	name := "bare-" + s.server
	p, err := launch(g.launcher, g.dir, name, true, g.self, g.roleArgs("state-stdio", name, "--state", to)...)
	if err != nil {
		return err
	}
	l := newStdioLink(p.stdin, p.stdout, sizeTool, minPayload)
	defer l.close()
	defer p.stop()
	if err := l.handshake(ctx); err != nil {
		return p.explain(err)
	}
	s.bare.add(time.Since(began))
	s.bare.endRound()
	return os.RemoveAll(to)
}
