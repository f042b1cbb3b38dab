package session

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A snapshot as a file:
//
//	"tine snapshot 2\n"
//	manifest                  what there is, and whose
//	the state of each member  in the order of the manifest
//	the workspace             where there is one, and those of further instances
//	the seal                  by which its gateway knows that it wrote all before
//	sha256 of all before
//
// Those that begin with "tine snapshot 1\n" have no seal.
//
// The manifest and each state is a series of chunks, a length of four bytes
// before each, and an empty one at the end. How a server is run is not in it: a
// gateway that reads the file runs what its own config says, and nothing that
// came with the file.
const (
	fileMagic    = "tine snapshot 2\n"
	fileUnsealed = "tine snapshot 1\n"
)

const (
	maxChunk    = 256 << 10
	maxManifest = 4 << 20
)

type manifest struct {
	Name      string            `json:"name,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Session   string            `json:"session,omitempty"`
	Created   time.Time         `json:"created"`
	Members   []manifestMember  `json:"members"`
	Workspace bool              `json:"workspace"`
	// Only names the servers that the session was opened with; nil for all.
	Only []string `json:"only,omitempty"`
	// Spaces are the ordinals of further workspaces, and Counts says of which
	// servers there are how many instances.
	Spaces []int          `json:"spaces,omitempty"`
	Counts map[string]int `json:"counts,omitempty"`
	// Damaged is what the session was damaged by, and Owed what it had still to be
	// told of that.
	Damaged []api.Damage           `json:"damaged,omitempty"`
	Owed    map[string]pendingLoss `json:"owed,omitempty"`
}

type manifestMember struct {
	Server  string `json:"server"`
	Driver  string `json:"driver"`
	Builtin string `json:"builtin,omitempty"`
	Carries string `json:"carries"`
	// Hello is what the server said in its handshake, where its memory is carried.
	Hello json.RawMessage `json:"hello,omitempty"`
	Idle  bool            `json:"idle,omitempty"`
}

// Export writes a snapshot, by its id, as one file, without the members that are
// hidden from who asks for it; nil for all.
func (r *Registry) Export(ctx context.Context, id string, hidden func(member string) bool, w io.Writer) error {
	giveBack, err := r.useSnapshot(id)
	if err != nil {
		return err
	}
	defer giveBack()
	snap := r.snapshotByID(id)
	if snap == nil {
		return noSnapshot(id)
	}
	m := manifest{Name: snap.Name, Labels: snap.Labels, Session: snap.Session, Created: snap.Created, Workspace: snap.Workspace != nil}
	members := snap.Members
	m.Only, m.Spaces, m.Counts = snap.Only, slices.Sorted(maps.Keys(snap.Spaces)), snap.Counts
	for _, d := range snap.Damaged {
		d.Why = api.WithoutWords(d.Why) // which an earlier version wrote down, perhaps of a shared server
		m.Damaged = append(m.Damaged, d)
	}
	m.Owed = maps.Clone(snap.Owed)
	for server, loss := range m.Owed {
		loss.Why = api.WithoutWords(loss.Why)
		m.Owed[server] = loss
	}
	if hidden != nil {
		members = slices.DeleteFunc(slices.Clone(members), func(f frozenMember) bool { return hidden(f.Server) })
		m.Only = slices.DeleteFunc(slices.Clone(m.Only), hidden)
		m.Counts = maps.Clone(m.Counts)
		maps.DeleteFunc(m.Counts, func(server string, _ int) bool { return hidden(server) })
		m.Damaged = slices.DeleteFunc(m.Damaged, func(d api.Damage) bool { return d.Server != "" && hidden(d.Server) })
		maps.DeleteFunc(m.Owed, func(server string, _ pendingLoss) bool { return server != "" && hidden(server) })
	}
	servers, err := r.serversOf(ctx, snap.Catalog)
	if err != nil {
		return err
	}
	for _, f := range members {
		base, _ := catalog.SplitMember(f.Server)
		m.Members = append(m.Members, manifestMember{f.Server, f.Snapshot.Driver, servers[base], f.Snapshot.Carries, f.Snapshot.Hello, f.Idle})
	}
	// Nothing is written of what could not be read again.
	for _, f := range members {
		if err := r.checkExport(ctx, id, f); err != nil {
			return err
		}
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(w, 64<<10)
	both := io.MultiWriter(out, sum)
	magic := fileMagic
	if r.o.Seal == nil {
		magic = fileUnsealed
	}
	if _, err := io.WriteString(both, magic); err != nil {
		return err
	}
	section := func(write func(io.Writer) error) error {
		c := &chunkWriter{w: both}
		if err := write(c); err != nil {
			return err
		}
		return c.close()
	}
	err = section(func(w io.Writer) error { return json.NewEncoder(w).Encode(m) })
	for _, f := range members {
		if err != nil {
			break
		}
		k := r.o.Drivers[f.Snapshot.Driver].(driver.Keeper)
		err = section(func(w io.Writer) error { return k.Export(ctx, f.Snapshot, w) })
	}
	spaces := snap.spaces()
	for _, n := range slices.Sorted(maps.Keys(spaces)) {
		if err != nil {
			break
		}
		err = section(func(w io.Writer) error { return r.o.Workspaces.Export(ctx, spaces[n], w) })
	}
	if err == nil && r.o.Seal != nil {
		err = section(func(w io.Writer) error {
			_, err := w.Write(r.o.Seal.of(sum))
			return err
		})
	}
	if err == nil {
		_, err = out.Write(sum.Sum(nil))
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("exporting snapshot %s: %w", id, r.snapshotLost(id, err))
	}
	return nil
}

// checkExport says why a member of a snapshot can't be exported; nil where it can.
func (r *Registry) checkExport(ctx context.Context, id string, f frozenMember) error {
	k, _ := r.o.Drivers[f.Snapshot.Driver].(driver.Keeper)
	if k == nil {
		return fmt.Errorf("snapshot %s: driver %q of server %q is not here", id, f.Snapshot.Driver, f.Server)
	}
	err := k.CheckExport(ctx, f.Snapshot)
	var ours *api.Error
	switch {
	case err == nil || ctx.Err() != nil || errors.As(err, &ours):
		return err
	}
	return &api.Error{Kind: api.KindRefused, Server: f.Server, Status: http.StatusConflict, Message: fmt.Sprintf("snapshot %s can't be exported: %v", id, err)}
}

// serversOf tells which built-in server each server behind a key is.
func (r *Registry) serversOf(ctx context.Context, key string) (map[string]string, error) {
	out := make(map[string]string)
	if key == "" {
		for _, e := range r.Catalog().Entries {
			out[e.ID] = e.Builtin
		}
		return out, nil
	}
	servers, err := r.catalogs.Unpin(ctx, key)
	for _, s := range servers {
		out[s.ID] = s.Builtin
	}
	return out, err
}

// ImportOptions say whose the snapshot of a file is to be, and what may be in it.
type ImportOptions struct {
	Owner string
	Name  string // empty for the one in the file, where that is free
	// Hidden reports the servers that don't exist for the importing caller; nil for no server.
	Hidden func(server string) bool
	// Programs lets in states that hold what is run, as a memory does, also where
	// this gateway did not write the file.
	Programs bool
}

// Import makes a snapshot of what Export wrote, here or elsewhere. Nothing of it
// is there before all of it was read and found right.
func (r *Registry) Import(ctx context.Context, o ImportOptions, rd io.Reader) (api.Snapshot, error) {
	if err := r.snapshotFits(o.Owner, o.Name, ""); err != nil {
		return api.Snapshot{}, err
	}
	snap := &snapshot{Snapshot: store.Snapshot{ID: newSnapshotID(), Name: o.Name, Owner: o.Owner, Created: time.Now().UTC()}}
	dir := filepath.Join(r.snapshotHome(), snap.ID)
	if err := makeFolder(dir); err != nil {
		return api.Snapshot{}, err
	}
	if err := r.readFile(ctx, snap, dir, rd, o); err != nil {
		gone, cancel := afterwards(ctx)
		defer cancel()
		r.discard(gone, &snap.frozen, dir)
		var ours *api.Error
		if errors.As(err, &ours) {
			return api.Snapshot{}, err
		}
		return api.Snapshot{}, &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("the snapshot can't be imported: %v", err)}
	}
	snap.Size = snap.frozen.size()
	if err := r.keepSnapshot(ctx, snap); err != nil {
		return api.Snapshot{}, err
	}
	return snap.describe(), nil
}

func (r *Registry) readFile(ctx context.Context, snap *snapshot, dir string, rd io.Reader, o ImportOptions) error {
	sum := sha256.New()
	in := &hashReader{r: bufio.NewReaderSize(rd, 64<<10), sum: sum}
	magic := make([]byte, len(fileMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != fileMagic && string(magic) != fileUnsealed {
		return errors.New("it is not a snapshot that Tine wrote, or of a version this one does not know")
	}
	c := &chunkReader{r: in}
	head, err := io.ReadAll(io.LimitReader(c, maxManifest+1))
	if err != nil {
		return err
	}
	if len(head) > maxManifest {
		return errors.New("its manifest is too large")
	}
	var m manifest
	dec := json.NewDecoder(bytes.NewReader(head))
	if err := dec.Decode(&m); err != nil {
		return fmt.Errorf("its manifest can't be read: %w", err)
	}
	if snap.Name == "" {
		snap.Name = freeName(m.Name, r.snapshotFits(snap.Owner, m.Name, ""))
	}
	// A name and labels from a file are taken only where they are valid here.
	if api.ValidSnapshotName(snap.Name) != nil {
		snap.Name = ""
	}
	if api.ValidLabels(m.Labels) == nil {
		snap.Labels = m.Labels
	}
	entries, err := r.importable(m, o)
	if err != nil {
		return err
	}
	for i, member := range m.Members {
		e := entries[i]
		c := &chunkReader{r: in}
		s, err := e.Keeper().Import(ctx, e.ID, filepath.Join(dir, member.Server), c)
		if err != nil {
			return notImported(member.Server, e.ID, err)
		}
		s.Driver, s.Server = e.Driver, member.Server
		if s.Carries == driver.CarryMemory && len(s.Hello) == 0 && len(member.Hello) > 0 {
			s.Hello = member.Hello
		}
		snap.Members = append(snap.Members, frozenMember{Server: member.Server, Snapshot: s, Idle: member.Idle})
		if err := c.drain(); err != nil {
			return fmt.Errorf("server %q: %w", member.Server, err)
		}
	}
	snap.Only, snap.Counts, snap.Damaged = m.Only, m.Counts, readDamage(m.Damaged)
	snap.Owed = readOwed(m.Owed, snap.Damaged)
	ordinals := m.Spaces
	if m.Workspace {
		ordinals = append([]int{0}, ordinals...)
	}
	last := -1
	for _, n := range ordinals {
		if n <= last || n >= catalog.MaxInstances {
			return errors.New("its manifest names its workspaces in disorder")
		}
		last = n
		c := &chunkReader{r: in}
		f, err := r.o.Workspaces.Import(ctx, filepath.Join(dir, spaceName(n)), c)
		if err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		snap.setSpace(n, f)
		if err := c.drain(); err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
	}
	ours := false
	if string(magic) == fileMagic {
		want := r.o.Seal.of(sum)
		seal, err := io.ReadAll(io.LimitReader(&chunkReader{r: in}, sha256.Size+1))
		if err != nil {
			return err
		}
		ours = want != nil && hmac.Equal(seal, want)
	}
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in.r, got); err != nil || !bytes.Equal(got, want) {
		return errors.New("its checksum is wrong: it is damaged or not whole")
	}
	if _, err := in.r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind its end")
	}
	for _, m := range snap.Members {
		if m.Snapshot.Runs && !ours && !o.Programs {
			return foreignProgram(m.Server)
		}
	}
	return nil
}

// notImported names the member that can't be imported, once: drivers name the
// server, which is called otherwise for a further instance.
func notImported(member, server string, err error) error {
	text := strings.TrimPrefix(err.Error(), fmt.Sprintf("server %q: ", server))
	return fmt.Errorf("server %q: %w", member, reworded{text, err})
}

// reworded is an error with another text.
type reworded struct {
	text string
	error
}

func (e reworded) Error() string { return e.text }
func (e reworded) Unwrap() error { return e.error }

// importable finds the servers that the members of a manifest are of, before
// anything else of the file is read. A hidden server is reported like one that
// does not exist.
func (r *Registry) importable(m manifest, o ImportOptions) ([]*catalog.Entry, error) {
	cat := r.Catalog()
	find := func(server string) *catalog.Entry {
		if e := cat.Entry(server); e != nil && e.Own() && (o.Hidden == nil || !o.Hidden(server)) {
			return e
		}
		return nil
	}
	seen := make(map[string]bool)
	var entries []*catalog.Entry
	for _, member := range m.Members {
		base, _ := catalog.SplitMember(member.Server)
		e := find(base)
		switch {
		case seen[member.Server]:
			return nil, fmt.Errorf("server %q stands in it twice", member.Server)
		case e == nil:
			return nil, fmt.Errorf("it has the state of server %q, and the config has no server of that name and scope session", member.Server)
		case e.Driver != member.Driver || e.Builtin != member.Builtin:
			return nil, fmt.Errorf("it has the state of server %q from %s, and here the server is run by %s", member.Server, driverText(member.Driver, member.Builtin), driverText(e.Driver, e.Builtin))
		case e.Keeper() == nil:
			return nil, fmt.Errorf("driver %q can't import", e.Driver)
		}
		if len(member.Hello) > 0 {
			if _, err := upstream.ReadHello(member.Hello); err != nil {
				return nil, fmt.Errorf("server %q: %w", member.Server, err)
			}
		}
		seen[member.Server] = true
		entries = append(entries, e)
	}
	for id, n := range m.Counts {
		if find(id) == nil || n < 1 || n > catalog.MaxInstances {
			return nil, fmt.Errorf("it has %d instances of server %q, which is not possible here", n, id)
		}
	}
	return entries, nil
}

// driverText names a driver, and of a built-in server which one it is.
func driverText(driver, builtin string) string {
	if builtin == "" {
		return fmt.Sprintf("driver %q", driver)
	}
	return fmt.Sprintf("driver %q (%s)", driver, builtin)
}

// freeName is a name if it can be had.
func freeName(name string, taken error) string {
	if taken != nil {
		return ""
	}
	return name
}

// hashReader reads and sums up.
type hashReader struct {
	r   *bufio.Reader
	sum hash.Hash
}

func (h *hashReader) Read(p []byte) (int, error) {
	n, err := h.r.Read(p)
	h.sum.Write(p[:n])
	return n, err
}

// chunkWriter writes a section.
type chunkWriter struct {
	w   io.Writer
	buf []byte
}

func (c *chunkWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), maxChunk-len(c.buf))
		c.buf = append(c.buf, p[:k]...)
		p = p[k:]
		if len(c.buf) == maxChunk {
			if err := c.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (c *chunkWriter) flush() error {
	if len(c.buf) == 0 {
		return nil
	}
	var size [4]byte
	binary.BigEndian.PutUint32(size[:], uint32(len(c.buf)))
	if _, err := c.w.Write(size[:]); err != nil {
		return err
	}
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}

func (c *chunkWriter) close() error {
	if err := c.flush(); err != nil {
		return err
	}
	_, err := c.w.Write(make([]byte, 4))
	return err
}

// chunkReader reads one section and ends with it.
type chunkReader struct {
	r    io.Reader
	left int
	done bool
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if c.left == 0 && !c.done {
		var size [4]byte
		if _, err := io.ReadFull(c.r, size[:]); err != nil {
			return 0, fmt.Errorf("it ends too early: %w", io.ErrUnexpectedEOF)
		}
		n := binary.BigEndian.Uint32(size[:])
		if n > maxChunk {
			return 0, errors.New("it is damaged: a chunk is too large")
		}
		c.left, c.done = int(n), n == 0
	}
	if c.done {
		return 0, io.EOF
	}
	n, err := c.r.Read(p[:min(len(p), c.left)])
	c.left -= n
	if errors.Is(err, io.EOF) && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// drain reads to the end of the section, of which nothing should be left.
func (c *chunkReader) drain() error {
	_, err := io.Copy(io.Discard, c)
	return err
}
