package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"
)

// kernelStart times first execs: of kernels that are started for them, and of kernels that
// stand ready.
func (t *trials) kernelStart(ctx context.Context) (_ []reading, err error) {
	k, err := t.kernelWorld(ctx, "rlm-start", kernelBoxed, kernelPlain, kernelSlotless, kernelWarm)
	if err != nil {
		return nil, err
	}
	defer k.end(&err)
	peer, err := t.jupyter()
	if err != nil {
		return nil, err
	}
	c := &contest{shows: showsAgainst, floor: &side{&series{name: "bare python3"}, func() ([]time.Duration, error) { return t.bareStart(k.python) }}}
	for _, way := range []struct{ server, name string }{
		{kernelSlotless, "cold, in a sandbox, nothing prepared"},
		{kernelBoxed, "cold, in a sandbox, a slot prepared"},
		{kernelPlain, "cold, as a process"},
		{kernelWarm, "warm, in a sandbox"},
	} {
		s := &side{&series{name: "rlm, " + way.name, server: way.server}, func() ([]time.Duration, error) { return k.firstExec(ctx, way.server) }}
		// The first of all makes something for those after it.
		if _, err := s.run(); err != nil {
			return nil, err
		}
		c.ours = append(c.ours, s)
	}
	if err := k.warmed(ctx); err != nil {
		return nil, err
	}
	c.before = func() error { return k.restocked(ctx) }
	if peer != nil {
		c.peer = &side{&series{name: "jupyter_client and ipykernel"}, func() ([]time.Duration, error) {
			r, err := peer.ask(ctx, map[string]any{"op": "start", "count": 1})
			return r.NS, errors.Join(err, peer.end(ctx))
		}}
	}
	return c.rounds(t.s.Rounds)
}

func (t *trials) bareStart(python string) ([]time.Duration, error) {
	began := time.Now()
	b, err := t.bare(python)
	if err != nil {
		return nil, err
	}
	defer b.close()
	err = b.call(context.Background(), 1)
	return []time.Duration{time.Since(began)}, err
}

// firstExec times a session with its first exec.
func (k *kernels) firstExec(ctx context.Context, server string) ([]time.Duration, error) {
	began := time.Now()
	id, err := k.first(ctx, server)
	took := time.Since(began)
	if err != nil {
		return nil, err
	}
	return []time.Duration{took}, k.close(ctx, id)
}

// warmed waits until there is a frozen kernel to begin with. A kernel has a state of its
// own, so that no copy stands ready; the log is where the gateway says that it begins with
// the frozen one all the same.
func (k *kernels) warmed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, boxTimeout)
	defer cancel()
	for {
		text, err := os.ReadFile(k.gate.log)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "sessions begin with what is warm of the server") {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-k.gate.exited:
			return k.gate.explain(errors.New("it ended while it was waited for"))
		case <-ctx.Done():
			return k.gate.explain(fmt.Errorf("no kernel is warm: %w", context.Cause(ctx)))
		}
	}
}

// restocked waits until the slots are filled again: to make them would be in the times.
func (k *kernels) restocked(ctx context.Context) error {
	const slots, longer = 2, 400 * time.Millisecond // than it takes to make one
	for _, server := range []string{kernelWarm, kernelBoxed} {
		if err := k.steady(ctx, gaugeSlots, server, slots, math.MaxInt, longer); err != nil {
			return err
		}
	}
	return nil
}

// Of many kernels at once.
const (
	manyKernels = 50
	kernelRoom  = 150e6 // bytes that must be free for each
)

// kernelCrowd starts many kernels at once, of each kind in turn, and forks one of them into
// as many.
func (t *trials) kernelCrowd(ctx context.Context) (_ []reading, err error) {
	n := min(manyKernels, t.s.Sessions)
	if room := int(memoryFree() / kernelRoom); room < n {
		t.notes = append(t.notes, fmt.Sprintf("rlm/crowd: there is memory for %d kernels and not for %d", max(room, 1), n))
		n = max(room, 1)
	}
	k, err := t.kernelWorld(ctx, "rlm-crowd", kernelBoxed, kernelPlain)
	if err != nil {
		return nil, err
	}
	defer k.end(&err)
	var out []reading
	add := func(name, server string, took time.Duration, h holding, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, reading{
			Case: fmt.Sprintf("%d of %s", n, name), Server: server, Total: took,
			PSS: h.pss / int64(n), Own: h.own() / int64(n), Sessions: n, shows: showsCrowd,
		})
		return nil
	}
	for _, way := range kernelNames {
		took, h, err := k.crowd(ctx, way.server, n)
		if err := add(way.name, way.server, took, h, err); err != nil {
			return nil, err
		}
	}
	took, h, err := k.forks(ctx, n)
	if err := add("rlm, forks of one in a sandbox", kernelBoxed, took, h, err); err != nil {
		return nil, err
	}
	peer, err := t.jupyter()
	if err != nil || peer == nil {
		return out, err
	}
	took, h, err = peer.crowd(ctx, n)
	if err := add("ipykernel", "", took, h, err); err != nil {
		return nil, err
	}
	theirs := out[len(out)-1]
	for i := range out[:len(out)-1] {
		out[i].Peer.P50 = float64(out[i].Total) / float64(theirs.Total)
		out[i].Lighter = float64(out[i].PSS) / float64(theirs.PSS)
	}
	return out, nil
}

// crowd is how long so many kernels take until all have answered, and what they hold then.
func (k *kernels) crowd(ctx context.Context, server string, n int) (took time.Duration, h holding, err error) {
	// The first of all makes something for those after it.
	if _, err := k.firstExec(ctx, server); err != nil {
		return 0, h, err
	}
	ids := make([]string, n)
	began := time.Now()
	err = allAtOnce(n, func(i int) (err error) { ids[i], err = k.first(ctx, server); return err })
	took = time.Since(began)
	if err == nil {
		h, err = k.held(server, n)
	}
	if err != nil {
		return 0, h, err
	}
	return took, h, k.close(ctx, ids...)
}

// forks is the same of copies of one kernel.
func (k *kernels) forks(ctx context.Context, n int) (took time.Duration, h holding, err error) {
	parent, err := k.first(ctx, kernelBoxed)
	if err != nil {
		return 0, h, err
	}
	if err := k.exec(ctx, parent, kernelBoxed, "mark = 6 * 7; mark", "42"); err != nil {
		return 0, h, err
	}
	began := time.Now()
	ids, err := k.fork(ctx, parent, n)
	if err == nil {
		err = allAtOnce(n, func(i int) error { return k.exec(ctx, ids[i], kernelBoxed, "mark + 1", "43") })
	}
	took = time.Since(began)
	if err == nil {
		err = k.close(ctx, parent)
	}
	if err == nil {
		h, err = k.held(kernelBoxed, n)
	}
	if err != nil {
		return 0, h, err
	}
	return took, h, k.close(ctx, ids...)
}

func (j *jupyter) crowd(ctx context.Context, n int) (took time.Duration, h holding, err error) {
	r, err := j.ask(ctx, map[string]any{"op": "start", "count": n})
	if err == nil {
		took = r.NS[0]
		h, err = j.held(ctx, n)
	}
	return took, h, errors.Join(err, j.end(ctx))
}
