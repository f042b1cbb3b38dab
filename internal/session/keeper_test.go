package session_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// What a server of the machine remembers is a map, in memory while it runs and
// in this file always.
const stateFile = "state.json"

func loadState(dir string) (map[string]string, error) {
	if dir == "" {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		return nil, fmt.Errorf("started on a state that was not made: %w", err)
	}
	state := map[string]string{}
	return state, json.Unmarshal(b, &state)
}

// writeWhole writes a file whole or not at all.
func writeWhole(path string, b []byte) error {
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// tool does what a call asks for: set, dump, write or read.
func (p *proc) tool(params []byte) string {
	var call struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := json.Unmarshal(params, &call); err != nil {
		p.m.t.Errorf("a call of %s: %v", params, err)
	}
	a := call.Arguments
	answer := func(v any, err error) string {
		if err != nil {
			v = err.Error()
		}
		b, err := json.Marshal(v)
		if err != nil {
			p.m.t.Error(err)
		}
		return string(b)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch call.Name {
	case "set":
		p.state[a["k"]] = a["v"]
		b, err := json.Marshal(p.state)
		if err == nil && p.kind != boxKind { // which has it in memory alone

			err = writeWhole(filepath.Join(p.spec.State, stateFile), b)
		}
		return answer("ok", err)
	case "dump":
		return answer(p.state, nil)
	case "write":
		ws := p.spec.Workspace
		if ws.Dir() != "" {
			return answer("ok", os.WriteFile(filepath.Join(ws.Dir(), a["path"]), []byte(a["text"]), 0o600))
		}
		return answer("ok", ws.FS().Write(a["path"], bytes.NewReader([]byte(a["text"])), int64(len(a["text"]))))
	case "read":
		ws := p.spec.Workspace
		if ws.Dir() != "" {
			b, err := os.ReadFile(filepath.Join(ws.Dir(), a["path"]))
			if errors.Is(err, fs.ErrNotExist) {
				return `"nothing"`
			}
			return answer(string(b), err)
		}
		f, err := ws.FS().Open(a["path"])
		if errors.Is(err, fs.ErrNotExist) {
			return `"nothing"`
		}
		if err != nil {
			return answer(nil, err)
		}
		defer f.Close()
		b, err := io.ReadAll(io.NewSectionReader(f, 0, f.Info().Size))
		return answer(string(b), err)
	}
	return answer(nil, fmt.Errorf("no tool %q", wire.FindString(params, "name")))
}

func (d *desk) Carries(spec driver.Spec) (carries, why string) {
	switch {
	case spec.Builtin == "files":
		return driver.CarryNone, "" // all it has is the workspace
	case spec.Builtin != "":
		return driver.CarryMemory, ""
	case len(spec.Dirs) > 0:
		return driver.CarryFiles, ""
	}
	return driver.CarryNone, fmt.Sprintf("what server %q remembers is not known; name its directories with servers.%s.state: [NAME] and ${state.NAME} in its args", spec.Server, spec.Server)
}

func (d *desk) Seed(ctx context.Context, spec driver.Spec, src driver.Source) (err error) {
	done, err := d.m.working(d.gen)
	if err != nil {
		return err
	}
	if inside, err := os.ReadDir(spec.State); err == nil && len(inside) > 0 {
		d.m.t.Errorf("seeding %s, where %d things are already", spec.State, len(inside))
	}
	err = os.MkdirAll(spec.State, 0o700)
	done()
	if err != nil {
		return err
	}
	defer func() {
		if err == nil || errors.Is(err, errDead) {
			return
		}
		if done, dead := d.m.working(d.gen); dead == nil {
			_ = os.RemoveAll(spec.State)
			done()
		}
	}()
	// What a death leaves here is half a state.
	if err := d.m.at(ctx, d.gen, "seed "+spec.Server); err != nil {
		return err
	}
	if done, err = d.m.working(d.gen); err != nil {
		return err
	}
	err = d.fill(spec, src)
	done()
	if err != nil {
		return err
	}
	return d.m.at(ctx, d.gen, "seeded "+spec.Server)
}

func (d *desk) fill(spec driver.Spec, src driver.Source) error {
	to := filepath.Join(spec.State, stateFile)
	b := []byte("{}")
	err := os.WriteFile(filepath.Join(spec.State, ".list"), nil, 0o600)
	if err != nil {
		return err
	}
	switch {
	case src.From != nil && src.Take:
		return os.Rename(filepath.Join(src.From.Dir, stateFile), to)
	case src.From != nil:
		b, err = os.ReadFile(filepath.Join(src.From.Dir, stateFile))
	case spec.Template != "":
		b, err = os.ReadFile(spec.Template)
	}
	if err != nil {
		return err
	}
	return writeWhole(to, b)
}

func (d *desk) Freeze(ctx context.Context, spec driver.Spec, inst driver.Instance, dir string) (driver.Snapshot, error) {
	var snap driver.Snapshot
	if p := d.m.worksOn(spec.State); p != nil && inst == nil && d.m.generation() == d.gen {
		d.m.t.Errorf("%s is frozen and an instance works on it", spec.State)
	}
	if i, ok := inst.(*instance); ok && len(i.held) == 0 {
		d.m.t.Errorf("%s is frozen while its instance goes on", spec.Server)
	}
	if err := d.m.at(ctx, d.gen, "freeze "+spec.Server); err != nil {
		return snap, err
	}
	done, err := d.m.working(d.gen)
	if err != nil {
		return snap, err
	}
	b, err := os.ReadFile(filepath.Join(spec.State, stateFile))
	if err == nil {
		snap, err = d.put(dir, b)
	}
	done()
	if p := d.m.worksOn(spec.State); p != nil && inst == nil && d.m.generation() == d.gen {
		d.m.t.Errorf("an instance of %s began to work on its state while that was frozen", spec.Server)
	}
	if err != nil {
		return snap, err
	}
	if err := d.m.at(ctx, d.gen, "froze "+spec.Server); err != nil {
		if !errors.Is(err, errDead) {
			_ = os.RemoveAll(dir)
		}
		return snap, err
	}
	return snap, nil
}

func (d *desk) put(dir string, b []byte) (driver.Snapshot, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return driver.Snapshot{}, err
	}
	return driver.Snapshot{Carries: driver.CarryFiles, Dir: dir, Size: int64(len(b))}, writeWhole(filepath.Join(dir, stateFile), b)
}

func (d *desk) Discard(ctx context.Context, s driver.Snapshot) error {
	return d.removal(ctx, "discard "+s.Server, s.Dir)
}

func (d *desk) Erase(ctx context.Context, spec driver.Spec) error {
	if p := d.m.worksOn(spec.State); p != nil && d.m.generation() == d.gen && d.m.stopping == nil {
		d.m.t.Errorf("%s is erased and an instance works on it", spec.State)
	}
	return d.removal(ctx, "erase "+spec.Server, spec.State)
}

func (d *desk) removal(ctx context.Context, point, dir string) error {
	if err := d.m.at(ctx, d.gen, point); err != nil {
		return err
	}
	done, err := d.m.working(d.gen)
	if err != nil {
		return err
	}
	err = os.RemoveAll(dir)
	done()
	if err != nil {
		return err
	}
	return d.m.at(ctx, d.gen, "did "+point)
}

func (d *desk) CheckExport(context.Context, driver.Snapshot) error { return nil }

func (d *desk) Export(_ context.Context, s driver.Snapshot, w io.Writer) error {
	b, err := os.ReadFile(filepath.Join(s.Dir, stateFile))
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}

func (d *desk) Import(ctx context.Context, server, dir string, r io.Reader) (driver.Snapshot, error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return driver.Snapshot{}, err
	}
	if err := json.Unmarshal(b, &map[string]string{}); err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: its state can't be read: %w", server, err)
	}
	if err := d.m.at(ctx, d.gen, "import "+server); err != nil {
		return driver.Snapshot{}, err
	}
	return d.put(dir, b)
}

// Recover has nothing to remove: all of it lies in folders of the sessions and
// snapshots. It sees whether it is told the truth.
func (d *desk) Recover(_ context.Context, states []string, snapshots []driver.Snapshot, sure bool) error {
	for _, dir := range states {
		if _, err := loadState(dir); err != nil && !d.m.loses {
			d.m.t.Errorf("a state that is to stay: %v", err)
		}
	}
	for _, s := range snapshots {
		if _, err := loadState(s.Dir); err != nil {
			d.m.t.Errorf("a snapshot of %s that is to stay: %v", s.Server, err)
		}
	}
	return nil
}

// worksOn returns the instance that works on a state; nil when there is none.
func (m *machine) worksOn(state string) *proc {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.procs {
		if p.spec.State == state && !p.over() {
			return p
		}
	}
	return nil
}

var _ driver.Keeper = (*desk)(nil)
