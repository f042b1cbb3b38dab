package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The kernels that are measured, by the names of their servers.
const (
	kernelBoxed    = "rlm"      // in a sandbox, as it is by itself
	kernelPlain    = "plain"    // a process of this machine
	kernelSlotless = "slotless" // in a sandbox for which nothing is prepared
	kernelWarm     = "warm"     // in a sandbox, from one that was started and frozen
)

// kernels is a gateway with kernels.
type kernels struct {
	*boxes
	python string
	files  string // a folder that they may load from
}

// kernelWorld starts a gateway with so many kinds of kernels.
func (t *trials) kernelWorld(ctx context.Context, name string, kinds ...string) (*kernels, error) {
	python, err := t.kernelPython(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.g.guard(ctx); err != nil {
		return nil, err
	}
	k := &kernels{python: python, files: filepath.Join(t.g.dir, "kernel-files")}
	if err := os.MkdirAll(k.files, 0o755); err != nil {
		return nil, err
	}
	servers := map[string]any{}
	for _, kind := range kinds {
		e := map[string]any{
			"builtin": "rlm", "connect_timeout": boxTimeout.String(),
			"settings": map[string]any{"python": python, "allow_read": []string{k.files}},
		}
		// Servers that are alike use the slots of each other.
		switch kind {
		case kernelPlain:
			e["sandbox"] = false
		case kernelSlotless:
			e["sandbox"] = map[string]any{"slots": 0, "hostname": kind}
		case kernelWarm:
			e["warm"], e["sandbox"] = 1, map[string]any{"hostname": kind}
		}
		servers[kind] = e
	}
	w, err := t.g.newWorld(ctx, name, map[string]any{"servers": servers, "sessions": unbounded()})
	if err != nil {
		return nil, err
	}
	k.boxes = &boxes{world: w, state: filepath.Join(t.g.dir, name, "state")}
	return k, nil
}

// tool is what a tool is called in the merged view.
func kernelTool(server, tool string) string {
	if server == kernelBoxed {
		return tool
	}
	return server + "__" + tool
}

// exec runs a line of code and looks for its value.
func (k *kernels) exec(ctx context.Context, session, server, code, want string) error {
	got, err := k.call(ctx, session, kernelTool(server, "rlm_exec"), map[string]any{"code": code})
	return knows(got, `"text":"`+want+`"`, err)
}

// first opens a session and has its kernel answer.
func (k *kernels) first(ctx context.Context, server string) (session string, err error) {
	if session, err = k.open(ctx, server); err == nil {
		err = k.exec(ctx, session, server, "6 * 7", "42")
	}
	return session, err
}

// dial makes a client of one kernel, which begins with its first call.
func (k *kernels) dial(ctx context.Context, server string) (*httpCaller, error) {
	c, err := dialScript(ctx, legacyEra, k.gate.url+"/mcp/"+server, "rlm_exec", k.gate.token, execScript(legacyEra, "rlm_exec"))
	if err != nil {
		return nil, err
	}
	c.client.Timeout = boxTimeout
	if err := c.call(ctx, 1); err != nil {
		c.close()
		return nil, k.gate.explain(err)
	}
	return c, nil
}

// held is what the kernels of a server hold together, of which there must be so many.
func (k *kernels) held(server string, want int) (holding, error) {
	records := boxRecords
	if server == kernelPlain {
		records = processRecords
	}
	found, err := records(filepath.Join(k.state, "instances"), server+"-")
	if err != nil {
		return holding{}, err
	}
	if len(found) != want {
		return holding{}, fmt.Errorf("%d kernels of %s are there, and should be %d", len(found), server, want)
	}
	return heldOf(found)
}

// bareProgram evaluates lines.
const bareProgram = "import sys\nfor line in sys.stdin: print(eval(line), flush=True)"

// barePython is a Python at the other end of a pipe: the floor.
type barePython struct {
	p   *process
	out *bufio.Reader
}

func (t *trials) bare(python string) (*barePython, error) {
	p, err := launch(t.g.launcher, t.g.dir, "bare-python", true, python, "-c", bareProgram)
	if err != nil {
		return nil, err
	}
	return &barePython{p, bufio.NewReader(p.stdout)}, nil
}

// eval has a line evaluated, and looks for its value.
func (b *barePython) eval(line, want string) error {
	_, err := io.WriteString(b.p.stdin, line+"\n")
	var got string
	if err == nil {
		got, err = b.out.ReadString('\n')
	}
	if got = strings.TrimSuffix(got, "\n"); err == nil && got != want {
		err = fmt.Errorf("%s is %s, and should be %s", line, got, want)
	}
	if err != nil {
		return b.p.explain(err)
	}
	return nil
}

func (b *barePython) call(_ context.Context, id uint64) error {
	return b.eval(fmt.Sprint(id)+sumTail, sumOf(id))
}

func (b *barePython) close() {
	b.p.stdin.Close()
	b.p.stop()
	b.p.stdout.Close()
}

//go:embed jupyter.py
var jupyterProgram []byte

// jupyterPython is the interpreter that has jupyter_client and ipykernel, relative to
// toolsFolder.
const jupyterPython = "jupyter/bin/python"

// jupyter is a process that has kernels of Jupyter.
type jupyter struct{ *driven }

// jupyter starts it, once; it is nil where there is none.
func (t *trials) jupyter() (*jupyter, error) {
	if t.peer != nil || t.peerless {
		return t.peer, nil
	}
	tools, err := toolsFolder()
	python := filepath.Join(tools, jupyterPython)
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		t.peerless = true
		t.notes = append(t.notes, "rows about rlm are without jupyter_client and ipykernel; run: make peers")
		return nil, nil
	}
	p, err := t.driven(python, "jupyter.py", jupyterProgram, t.g.dir)
	if err != nil {
		return nil, err
	}
	t.peer = &jupyter{p}
	return t.peer, nil
}

// begin starts one kernel whose messages arrive, and end ends all.
func (j *jupyter) begin(ctx context.Context) error {
	_, err := j.ask(ctx, map[string]any{"op": "start", "count": 1})
	if err == nil {
		_, err = j.ask(ctx, map[string]any{"op": "ready"})
	}
	return err
}

func (j *jupyter) end(ctx context.Context) error {
	_, err := j.ask(ctx, map[string]any{"op": "end"})
	return err
}

// sums has the kernel run so much code.
func (j *jupyter) sums(ctx context.Context, first uint64, count int) ([]time.Duration, error) {
	r, err := j.ask(ctx, map[string]any{"op": "sums", "first": first, "count": count})
	return r.NS, err
}

// held is what its kernels hold together, of which there must be so many.
func (j *jupyter) held(ctx context.Context, want int) (holding, error) {
	r, err := j.ask(ctx, map[string]any{"op": "kernels"})
	if err != nil {
		return holding{}, err
	}
	if len(r.PIDs) != want {
		return holding{}, fmt.Errorf("%d kernels of jupyter are there, and should be %d", len(r.PIDs), want)
	}
	var found []boxRecord
	for _, pid := range r.PIDs {
		found = append(found, recordOf(pid))
	}
	return heldOf(found)
}
