package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
)

// pythonGroup is the group of rows about trainers in Python.
const pythonGroup = "python"

// What Tine aims at with them.
const (
	aimOfficial = 1   // times what a call by the official client takes, less than
	aimGo       = 1.3 // times what the client in Go takes, at most
)

// pythonCalls is how many calls of each side a round has.
const pythonCalls = 200

// manyCallers is how many calls run at once in the second case of calls.
const manyCallers = 64

// pythonTrials is every row about trainers in Python, in the order of the report.
func pythonTrials() []*trial {
	return []*trial{
		{
			Group: pythonGroup, Name: "call", About: "w.call of tineworld, against call_tool of the official client on the same session",
			limits: []limit{{"p50", aimOfficial, true, ratioP50}}, needs: needPython, run: (*trials).pythonCall,
		},
		{
			Group: pythonGroup, Name: "worlds", About: "so many worlds forked, called once and closed through batches, against the client in Go",
			limits: []limit{{"p50", aimGo, false, ratioP50}}, needs: needPython, run: (*trials).pythonWorlds,
		},
	}
}

// Interpreters that have tineworld and the official client, relative to toolsFolder.
const (
	tineworldPython = "../python/bin/python"
	officialPython  = pythonProgram
)

// needPython says which of the two environments is missing.
func needPython(ctx context.Context, _ settings) error {
	tools, err := toolsFolder()
	if err != nil {
		return err
	}
	for _, n := range []struct{ python, module, mend string }{{tineworldPython, "tineworld", "make python"}, {officialPython, "mcp", "make setup"}} {
		if err := exec.CommandContext(ctx, filepath.Join(tools, n.python), "-c", "import "+n.module).Run(); err != nil {
			return fmt.Errorf("there is no Python with %s: %w; run: %s", n.module, err, n.mend)
		}
	}
	return nil
}

//go:embed trainer.py
var trainerProgram []byte

// trainers are a gateway with a session that has a file, and a program for each client.
type trainers struct {
	*world
	session        string
	ours, official *driven
}

func (t *trials) trainers(ctx context.Context, name string) (*trainers, error) {
	w, err := t.g.newWorld(ctx, name, statefulServers(""))
	if err != nil {
		return nil, err
	}
	tools, err := toolsFolder()
	if err != nil {
		return nil, err
	}
	out := &trainers{world: w}
	for into, python := range map[**driven]string{&out.ours: tineworldPython, &out.official: officialPython} {
		if *into, err = t.driven(filepath.Join(tools, python), "trainer.py", trainerProgram, w.gate.url, w.gate.token); err != nil {
			return nil, err
		}
	}
	if out.session, err = w.open(ctx, "files"); err != nil {
		return nil, err
	}
	_, err = w.call(ctx, out.session, "files__write_file", map[string]any{"path": "mark.txt", "content": "marked"})
	return out, err
}

// end closes the session. The programs and the gateway end with the run.
func (w *trainers) end(err *error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	*err = errors.Join(*err, w.close(ctx, w.session))
}

// asked has a program do something, and gives how long it took.
func (w *trainers) asked(ctx context.Context, p *driven, request map[string]any) timed {
	request["session"] = w.session
	return func() ([]time.Duration, error) {
		r, err := p.ask(ctx, request)
		return r.NS, err
	}
}

// pythonCall times single calls.
func (t *trials) pythonCall(ctx context.Context) (out []reading, err error) {
	w, err := t.trainers(ctx, "python-call")
	if err != nil {
		return nil, err
	}
	defer w.end(&err)
	for _, callers := range []int{1, manyCallers} {
		n := min(max(pythonCalls, 10*callers), t.s.MaxCalls)
		calls := func(op string, p *driven) timed {
			return w.asked(ctx, p, map[string]any{"op": op, "count": n, "callers": callers})
		}
		c := &contest{
			shows: showsTail,
			floor: &side{&series{name: fmt.Sprintf("mcp, %d at once", callers)}, calls("official", w.official)},
			ours:  []*side{{&series{name: fmt.Sprintf("tineworld, %d at once", callers)}, calls("ours", w.ours)}},
		}
		got, err := c.rounds(t.s.Rounds)
		if err != nil {
			return nil, err
		}
		out = append(out, got...)
	}
	return out, nil
}

// pythonWorlds times whole lives of many worlds.
func (t *trials) pythonWorlds(ctx context.Context) (_ []reading, err error) {
	w, err := t.trainers(ctx, "python-worlds")
	if err != nil {
		return nil, err
	}
	defer w.end(&err)
	c := &contest{
		floor: &side{&series{name: fmt.Sprintf("the client in Go, %d worlds", t.s.Sessions)}, func() ([]time.Duration, error) {
			return once(func() error { return w.lives(ctx, t.s.Sessions) })
		}},
		ours: []*side{{&series{name: fmt.Sprintf("tineworld, %d worlds", t.s.Sessions)}, w.asked(ctx, w.ours, map[string]any{"op": "worlds", "count": t.s.Sessions})}},
	}
	return c.rounds(t.s.Rounds)
}

// lives forks the session so many times, calls each child once, and closes them.
func (w *trainers) lives(ctx context.Context, count int) error {
	var children []string
	err := w.batch(ctx, []api.BatchItem{{Fork: &api.BatchFork{Session: w.session, ForkRequest: api.ForkRequest{Count: count}}}}, func(l api.BatchLine) error {
		for _, s := range l.Forks.Sessions {
			children = append(children, s.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var calls, closes []api.BatchItem
	for _, id := range children {
		calls = append(calls, api.BatchItem{Call: &api.CallRequest{Session: id, Tool: "files__read_text_file", Arguments: []byte(`{"path":"mark.txt"}`)}})
		closes = append(closes, api.BatchItem{Close: &api.BatchClose{Session: id}})
	}
	return errors.Join(w.batch(ctx, calls, nil), w.batch(ctx, closes, nil))
}

// batch makes items, in as many requests as they need.
func (w *trainers) batch(ctx context.Context, items []api.BatchItem, each func(api.BatchLine) error) error {
	for part := range slices.Chunk(items, api.MaxBatch) {
		_, err := w.client.Batch(ctx, api.Batch{Items: part}, func(l api.BatchLine) error {
			if l.Error != nil {
				return l.Error
			}
			if each == nil {
				return nil
			}
			return each(l)
		})
		if err != nil {
			return w.gate.explain(err)
		}
	}
	return nil
}
