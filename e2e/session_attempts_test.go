//go:build unix

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func (m *model) change() attempt {
	s, shelf := pick(m.rng, m.live), pick(m.rng, m.shelves)
	before := s.holds[shelf.server]
	after := maps.Clone(before)
	u := func() user { return shelf.on(m.c, s.id) } // the client is another one after a kill
	var a attempt
	if keys := slices.Sorted(maps.Keys(before)); len(keys) > 0 && shelf.drop != nil && m.rng.IntN(4) == 0 {
		key := pick(m.rng, keys)
		delete(after, key)
		a.text = fmt.Sprintf("%s: %s drops %s", s.id, shelf.server, key)
		a.do = func(ctx context.Context) error { return shelf.drop(ctx, u(), key) }
	} else {
		key, value := fmt.Sprintf("d%d/k%d", m.rng.IntN(3), m.rng.IntN(5)), m.word("v")
		_, replaces := before[key]
		after[key] = shelf.after(before, key, value)
		a.text = fmt.Sprintf("%s: %s puts %s = %s", s.id, shelf.server, key, value)
		a.do = func(ctx context.Context) error { return shelf.put(ctx, u(), key, value, replaces) }
	}
	a.done = func() { s.holds[shelf.server] = after }
	a.settle = func(ctx context.Context) error {
		got, err := shelf.all(ctx, u())
		if err != nil {
			return err
		}
		switch {
		case maps.Equal(got, before):
		case maps.Equal(got, after):
			a.done()
		default:
			return fmt.Errorf("%s holds neither what was there before nor after: %s", s.id, differ(got, after))
		}
		return nil
	}
	return a
}

func (m *model) open() attempt {
	if len(m.live) >= maxLive {
		return attempt{}
	}
	in := api.NewSession{Labels: map[string]string{"n": m.word("n")}}
	holds := holding{}
	for _, s := range m.shelves {
		holds[s.server] = map[string]string{}
	}
	if len(m.frozen) > 0 && m.rng.IntN(2) == 0 {
		f := pick(m.rng, m.frozen)
		in.From, holds = f.id, f.holds
	}
	in.Eager = m.rng.IntN(4) == 0
	var made *api.OpenedSession
	key := client.Once(m.word("key-of-this-open-") + fmt.Sprint(m.rng.Uint64()))
	a := attempt{text: fmt.Sprintf("open from %q, eager %t", in.From, in.Eager)}
	a.do = func(ctx context.Context) (err error) {
		made, err = m.c.OpenSession(ctx, in, key)
		return err
	}
	a.done = func() { m.live = append(m.live, &twin{made.ID, holds.clone()}) }
	a.settle = func(ctx context.Context) error {
		return m.again(ctx, a, client.SessionQuery{Labels: in.Labels}, 1, holds)
	}
	return a
}

func (m *model) fork() attempt {
	count := 1 + m.rng.IntN(3)
	if len(m.live)+count > maxLive {
		return attempt{}
	}
	s := pick(m.rng, m.live)
	holds := s.holds.clone()
	in := api.ForkRequest{Count: count, Labels: map[string]string{"n": m.word("n")}}
	key := client.Once(m.word("key-of-this-fork-") + fmt.Sprint(m.rng.Uint64()))
	var made *api.Forks
	a := attempt{text: fmt.Sprintf("fork %s into %d", s.id, count)}
	a.do = func(ctx context.Context) (err error) {
		made, err = m.c.Fork(ctx, s.id, in, key)
		if err == nil && len(made.Sessions) != count {
			err = fmt.Errorf("%d sessions, want %d", len(made.Sessions), count)
		}
		return err
	}
	a.done = func() {
		for _, c := range made.Sessions {
			m.live = append(m.live, &twin{c.ID, holds.clone()})
		}
	}
	a.settle = func(ctx context.Context) error {
		return m.again(ctx, a, client.SessionQuery{Labels: in.Labels}, count, holds)
	}
	return a
}

// again finds out what came of an attempt that made sessions: all of them are
// there, or none. Half of the time it is repeated, which makes nothing twice.
func (m *model) again(ctx context.Context, a attempt, q client.SessionQuery, count int, holds holding) error {
	made, err := openSessions(ctx, m.c, q)
	if err != nil {
		return err
	}
	if n := len(made); n != 0 && n != count {
		return fmt.Errorf("%d of %d sessions are there", n, count)
	}
	if m.rng.IntN(2) == 0 {
		if err := a.do(ctx); err != nil {
			return fmt.Errorf("repeated: %w", err)
		}
		if made, err = openSessions(ctx, m.c, q); err != nil {
			return err
		}
		if len(made) != count {
			return fmt.Errorf("repeated with its key it made %d sessions, want %d", len(made), count)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(made)) {
		m.live = append(m.live, &twin{id, holds.clone()})
	}
	return nil
}

func (m *model) snapshot() attempt {
	s := pick(m.rng, m.live)
	holds := s.holds.clone()
	in := api.SnapshotRequest{}
	if m.rng.IntN(2) == 0 {
		in.Name = m.word("name")
	}
	var made *api.Snapshot
	a := attempt{text: fmt.Sprintf("snapshot %s as %q", s.id, in.Name)}
	a.do = func(ctx context.Context) (err error) {
		made, err = m.c.MakeSnapshot(ctx, s.id, in)
		return err
	}
	a.done = func() { m.frozen = append(m.frozen, &frozenTwin{made.ID, s.id, holds}) }
	a.settle = func(ctx context.Context) error {
		found, err := m.unknownSnapshot(ctx)
		if err == nil && found != nil {
			made = found
			a.done()
		}
		return err
	}
	return a
}

// unknownSnapshot finds the one that the model does not have.
func (m *model) unknownSnapshot(ctx context.Context) (found *api.Snapshot, err error) {
	for s, err := range m.c.AllSnapshots(ctx, client.SnapshotQuery{}) {
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(m.frozen, func(f *frozenTwin) bool { return f.id == s.ID }) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("snapshots %s and %s have no owner", found.ID, s.ID)
		}
		found = &s
	}
	return found, nil
}

func (m *model) rewind() attempt {
	s := pick(m.rng, m.live)
	own := slices.DeleteFunc(slices.Clone(m.frozen), func(f *frozenTwin) bool { return f.session != s.id })
	if len(own) == 0 {
		return attempt{}
	}
	f := pick(m.rng, own)
	before, after := s.holds, f.holds.clone()
	a := attempt{text: fmt.Sprintf("rewind %s to %s", s.id, f.id)}
	a.do = func(ctx context.Context) error {
		_, err := m.c.Rewind(ctx, s.id, api.RewindRequest{Snapshot: f.id})
		return err
	}
	a.done = func() { s.holds = after }
	a.settle = func(ctx context.Context) error {
		old := m.compare(ctx, &twin{s.id, before})
		if old == nil {
			return nil
		}
		if now := m.compare(ctx, &twin{s.id, after}); now != nil {
			return fmt.Errorf("it is neither rewound nor as it was: %w\n%w", old, now)
		}
		a.done()
		return nil
	}
	return a
}

func (m *model) close() attempt {
	s := pick(m.rng, m.live)
	a := attempt{text: "close " + s.id}
	a.do = func(ctx context.Context) error { return m.c.CloseSession(ctx, s.id) }
	a.done = func() { m.live = slices.DeleteFunc(m.live, func(o *twin) bool { return o == s }) }
	a.settle = func(ctx context.Context) error {
		all, err := openSessions(ctx, m.c, client.SessionQuery{})
		if _, open := all[s.id]; err == nil && !open {
			a.done()
		}
		return err
	}
	return a
}

func (m *model) deleteSnapshot() attempt {
	if len(m.frozen) == 0 {
		return attempt{}
	}
	f := pick(m.rng, m.frozen)
	a := attempt{text: "delete " + f.id}
	a.do = func(ctx context.Context) error { return m.c.DeleteSnapshot(ctx, f.id) }
	a.done = func() { m.frozen = slices.DeleteFunc(m.frozen, func(o *frozenTwin) bool { return o == f }) }
	a.settle = func(ctx context.Context) error {
		_, err := m.c.Snapshot(ctx, f.id)
		var no *api.Error
		if errors.As(err, &no) && no.Status == 404 {
			a.done()
			return nil
		}
		return err
	}
	return a
}

// carry takes a snapshot out as a file and in again.
func (m *model) carry() attempt {
	if len(m.frozen) == 0 {
		return attempt{}
	}
	f := pick(m.rng, m.frozen)
	var made *api.Snapshot
	a := attempt{text: "export " + f.id + " and import it"}
	a.do = func(ctx context.Context) error {
		file, err := m.c.ExportSnapshot(ctx, f.id)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		defer file.Close()
		data, err := io.ReadAll(file)
		if err != nil {
			return fmt.Errorf("export: %w", err)
		}
		made, err = m.c.ImportSnapshot(ctx, "", bytes.NewReader(data))
		return err
	}
	a.done = func() { m.frozen = append(m.frozen, &frozenTwin{made.ID, "", f.holds}) }
	a.settle = func(ctx context.Context) error {
		found, err := m.unknownSnapshot(ctx)
		if err == nil && found != nil {
			made = found
			a.done()
		}
		return err
	}
	return a
}
