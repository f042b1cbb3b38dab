package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// Of execs.
const (
	execCalls  = 200    // of each side in a round, after a fifth of it to warm up
	manyExecs  = 10_000 // in a row
	settling   = 1500   // before the memory is looked at
	loadedSize = 100    // MB of the file that is loaded
)

// oneKernel is a kernel of each kind, and what stands beside them.
type oneKernel struct {
	*kernels
	callers map[string]*httpCaller
	bare    *barePython
	peer    *jupyter // nil where there is none
	ids     atomic.Uint64
}

// kernelNames are the kernels that run code, as the report has them.
var kernelNames = []struct{ server, name string }{
	{kernelBoxed, "rlm, in a sandbox"}, {kernelPlain, "rlm, as a process"},
}

// withKernels begins a kernel of each kind.
func (t *trials) withKernels(ctx context.Context, name string) (_ *oneKernel, err error) {
	k := &oneKernel{callers: map[string]*httpCaller{}}
	if k.kernels, err = t.kernelWorld(ctx, name, kernelBoxed, kernelPlain); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.close(&err)
		}
	}()
	for _, way := range kernelNames {
		if k.callers[way.server], err = k.dial(ctx, way.server); err != nil {
			return nil, err
		}
	}
	if k.bare, err = t.bare(k.python); err != nil {
		return nil, err
	}
	peer, err := t.jupyter()
	if err == nil && peer != nil {
		if err = peer.begin(ctx); err == nil {
			k.peer = peer
		}
	}
	return k, err
}

// close ends all kernels.
func (k *oneKernel) close(err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), boxTimeout)
	defer cancel()
	for _, c := range k.callers {
		if c != nil {
			c.close()
		}
	}
	if k.bare != nil {
		k.bare.close()
	}
	if k.peer != nil {
		if e := k.peer.end(ctx); *err == nil {
			*err = e
		}
	}
	k.end(err)
}

// called has one of ours, or a bare Python, work out sums.
func (k *oneKernel) called(ctx context.Context, c caller, count int) (load, error) {
	l := drive(ctx, []caller{c}, time.Hour, count, &k.ids)
	if l.first != nil {
		return l, k.gate.explain(l.first)
	}
	return l, ctx.Err()
}

func (k *oneKernel) sums(ctx context.Context, count int) ([]time.Duration, error) {
	return k.peer.sums(ctx, k.ids.Add(uint64(count))-uint64(count), count)
}

// contest makes a side of each kernel, of a bare Python, and of the peer where there is
// one.
func (k *oneKernel) contest(shows shows, ours func(server string) timed, floor, peer timed) *contest {
	c := &contest{shows: shows, floor: &side{&series{name: "bare python3 over a pipe"}, floor}}
	for _, way := range kernelNames {
		c.ours = append(c.ours, &side{&series{name: way.name, server: way.server}, ours(way.server)})
	}
	if k.peer != nil {
		c.peer = &side{&series{name: "jupyter_client and ipykernel"}, peer}
	}
	return c
}

// kernelExec times single execs.
func (t *trials) kernelExec(ctx context.Context) (_ []reading, err error) {
	k, err := t.withKernels(ctx, "rlm-exec")
	if err != nil {
		return nil, err
	}
	defer k.close(&err)
	n := min(execCalls, t.s.MaxCalls)
	warm := max(n/5, 1)
	called := func(c caller) timed {
		return func() ([]time.Duration, error) {
			if _, err := k.called(ctx, c, warm); err != nil {
				return nil, err
			}
			l, err := k.called(ctx, c, n)
			return l.latencies, err
		}
	}
	return k.contest(showsExec,
		func(server string) timed { return called(k.callers[server]) },
		called(k.bare),
		func() ([]time.Duration, error) {
			if _, err := k.sums(ctx, warm); err != nil {
				return nil, err
			}
			return k.sums(ctx, n)
		},
	).rounds(t.s.Rounds)
}

// kernelExecs makes many execs in a row, and looks at the memory of the kernel before and
// after them.
func (t *trials) kernelExecs(ctx context.Context) (_ []reading, err error) {
	k, err := t.withKernels(ctx, "rlm-execs")
	if err != nil {
		return nil, err
	}
	defer k.close(&err)
	n := min(manyExecs, t.s.MaxCalls)
	before := min(settling, n)
	ask := func(c caller) func(int) error {
		return func(count int) error { _, err := k.called(ctx, c, count); return err }
	}
	type runner struct {
		name, server string
		call         func(count int) error
		held         func() (holding, error)
	}
	runners := []runner{{"bare python3 over a pipe", "", ask(k.bare), func() (holding, error) { return heldOf([]boxRecord{recordOf(k.bare.p.pid())}) }}}
	for _, way := range kernelNames {
		runners = append(runners, runner{way.name, way.server, ask(k.callers[way.server]), func() (holding, error) { return k.held(way.server, 1) }})
	}
	if k.peer != nil {
		runners = append(runners, runner{
			"jupyter_client and ipykernel", "",
			func(count int) error { _, err := k.sums(ctx, count); return err },
			func() (holding, error) { return k.peer.held(ctx, 1) },
		})
	}
	var out []reading
	for _, r := range runners {
		if err := r.call(before); err != nil {
			return nil, err
		}
		was, err := r.held()
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := r.call(n); err != nil {
			return nil, err
		}
		took := time.Since(began)
		is, err := r.held()
		if err != nil {
			return nil, err
		}
		grown := is.own() - was.own()
		if r.server == kernelBoxed {
			grown = is.inside - was.inside
		}
		out = append(out, reading{
			Case: fmt.Sprintf("%s, %d", r.name, n), Server: r.server, Total: took,
			Own: is.own(), OwnBefore: was.own(), Grown: grown, PSS: is.pss, shows: showsGrowth,
		})
	}
	if k.peer != nil {
		peer := out[len(out)-1]
		for i := range out[:len(out)-1] {
			out[i].Peer.P50 = float64(out[i].Total) / float64(peer.Total)
		}
	}
	return out, nil
}

// kernelLoad times how a large file becomes a variable.
func (t *trials) kernelLoad(ctx context.Context) (_ []reading, err error) {
	k, err := t.withKernels(ctx, "rlm-load")
	if err != nil {
		return nil, err
	}
	defer k.close(&err)
	size := min(loadedSize, int(t.s.Workspace)) * 1e6
	path := filepath.Join(k.files, "loaded.txt")
	if err := writeText(path, size); err != nil {
		return nil, err
	}
	read, want := fmt.Sprintf("len(data := open(%q, encoding='utf-8').read())", path), fmt.Sprint(size)
	sessions := map[string]string{}
	for _, way := range kernelNames {
		if sessions[way.server], err = k.first(ctx, way.server); err != nil {
			return nil, err
		}
	}
	t.notes = append(t.notes, fmt.Sprintf("rlm/load: the file has %s", sizeName(int64(size))))
	return k.contest(showsAgainst,
		func(server string) timed {
			return func() ([]time.Duration, error) {
				times, err := once(func() error {
					got, err := k.call(ctx, sessions[server], kernelTool(server, "rlm_load"), map[string]any{"path": path, "var_name": "data"})
					return knows(got, "("+want+" chars)", err)
				})
				if err == nil {
					err = k.exec(ctx, sessions[server], server, "len(data)", want)
				}
				return times, err
			}
		},
		func() ([]time.Duration, error) { return once(func() error { return k.bare.eval(read, want) }) },
		func() ([]time.Duration, error) {
			r, err := k.peer.ask(ctx, map[string]any{"op": "value", "code": read, "want": want})
			return r.NS, err
		},
	).rounds(t.s.Rounds)
}

// writeText writes a file of lines, and leaves the disk at rest.
func writeText(path string, size int) error {
	line := strings.Repeat("a line of a log that says little, ", 3) + "and ends here\n"
	text := strings.Repeat(line, size/len(line)+1)[:size]
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
