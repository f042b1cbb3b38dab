package session

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A snapshot as a file:
//
//	"tine snapshot 1\n"
//	manifest                  what there is, and whose
//	the state of each member  in the order of the manifest
//	the workspace             where there is one, and those of further instances
//	sha256 of all before
//
// The manifest and each state is a series of chunks, a length of four bytes
// before each, and an empty one at the end. How a server is run is not in it:
// whoever reads it runs what the own config says, and nothing that came with a
// file.
const fileMagic = "tine snapshot 1\n"

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
	// Spaces are the ordinals of further workspaces, and Counts says of which
	// servers there are how many instances.
	Spaces []int          `json:"spaces,omitempty"`
	Counts map[string]int `json:"counts,omitempty"`
	// Damaged is what the session was damaged by.
	Damaged []api.Damage `json:"damaged,omitempty"`
}

type manifestMember struct {
	Server  string `json:"server"`
	Driver  string `json:"driver"`
	Builtin string `json:"builtin,omitempty"`
	Carries string `json:"carries"`
	// Hello is what the server said in its handshake, where its memory is carried.
	Hello json.RawMessage `json:"hello,omitempty"`
}

// Export writes a snapshot, by its id, as one file.
func (r *Registry) Export(ctx context.Context, id string, w io.Writer) error {
	giveBack, err := r.borrow(id)
	if err != nil {
		return err
	}
	defer giveBack()
	snap := r.snapshotByID(id)
	if snap == nil {
		return noSnapshot(id)
	}
	m := manifest{Name: snap.Name, Labels: snap.Labels, Session: snap.Session, Created: snap.Created, Workspace: snap.Workspace != nil}
	m.Spaces, m.Counts = slices.Sorted(maps.Keys(snap.Spaces)), snap.Counts
	m.Damaged = snap.Damaged
	servers, err := r.serversOf(ctx, snap.Catalog)
	if err != nil {
		return err
	}
	for _, f := range snap.Members {
		base, _ := splitMember(f.Server)
		m.Members = append(m.Members, manifestMember{f.Server, f.Snapshot.Driver, servers[base], f.Snapshot.Carries, f.Snapshot.Hello})
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(w, 64<<10)
	both := io.MultiWriter(out, sum)
	if _, err := io.WriteString(both, fileMagic); err != nil {
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
	for _, f := range snap.Members {
		if err != nil {
			break
		}
		k, _ := r.o.Drivers[f.Snapshot.Driver].(driver.Keeper)
		if k == nil {
			return fmt.Errorf("snapshot %s: driver %q of server %q is not here", id, f.Snapshot.Driver, f.Server)
		}
		err = section(func(w io.Writer) error { return k.Export(ctx, f.Snapshot, w) })
	}
	spaces := snap.spaces()
	for _, n := range slices.Sorted(maps.Keys(spaces)) {
		if err != nil {
			break
		}
		err = section(func(w io.Writer) error { return r.o.Workspaces.Export(ctx, spaces[n], w) })
	}
	if err == nil {
		_, err = out.Write(sum.Sum(nil))
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("exporting snapshot %s: %w", id, err)
	}
	return nil
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
	servers, err := r.unpin(ctx, key)
	for _, s := range servers {
		out[s.ID] = s.Builtin
	}
	return out, err
}

// Import makes a snapshot of what Export wrote, here or elsewhere. Nothing of it
// is there before all of it was read and found right.
func (r *Registry) Import(ctx context.Context, owner, name string, rd io.Reader) (api.Snapshot, error) {
	if err := r.snapshotFits(owner, name, ""); err != nil {
		return api.Snapshot{}, err
	}
	snap := &snapshot{Snapshot: store.Snapshot{ID: newSnapshotID(), Name: name, Owner: owner, Created: time.Now().UTC()}}
	dir := filepath.Join(r.snapshotHome(), snap.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return api.Snapshot{}, fmt.Errorf("making the folder of the snapshot: %w", err)
	}
	if err := r.readFile(ctx, snap, dir, rd); err != nil {
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

func (r *Registry) readFile(ctx context.Context, snap *snapshot, dir string, rd io.Reader) error {
	sum := sha256.New()
	in := &hashReader{r: bufio.NewReaderSize(rd, 64<<10), sum: sum}
	magic := make([]byte, len(fileMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != fileMagic {
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
	// What a file says is taken where somebody could have said it here.
	if api.ValidSnapshotName(snap.Name) != nil {
		snap.Name = ""
	}
	if api.ValidLabels(m.Labels) == nil {
		snap.Labels = m.Labels
	}
	seen := make(map[string]bool)
	for _, member := range m.Members {
		base, _ := splitMember(member.Server)
		e := r.Catalog().Entry(base)
		switch {
		case seen[member.Server]:
			return fmt.Errorf("server %q stands in it twice", member.Server)
		case e == nil || !e.own():
			return fmt.Errorf("it has the state of server %q, and the config has no server of that name and scope session", member.Server)
		case e.Driver != member.Driver || e.Builtin != member.Builtin:
			return fmt.Errorf("it has the state of server %q as driver %q %s made it, and here that is driver %q %s", member.Server, member.Driver, member.Builtin, e.Driver, e.Builtin)
		case e.keeper() == nil:
			return fmt.Errorf("driver %q can't import", e.Driver)
		}
		if len(member.Hello) > 0 {
			if _, err := upstream.ReadHello(member.Hello); err != nil {
				return fmt.Errorf("server %q: %w", member.Server, err)
			}
		}
		seen[member.Server] = true
		c := &chunkReader{r: in}
		s, err := e.keeper().Import(ctx, e.ID, filepath.Join(dir, member.Server), c)
		if err != nil {
			return fmt.Errorf("server %q: %w", member.Server, err)
		}
		s.Driver, s.Server = e.Driver, member.Server
		if s.Carries == driver.CarryMemory && len(s.Hello) == 0 && len(member.Hello) > 0 {
			s.Hello = member.Hello
		}
		snap.Members = append(snap.Members, frozenMember{member.Server, s, nil})
		if err := c.drain(); err != nil {
			return fmt.Errorf("server %q: %w", member.Server, err)
		}
	}
	for id, n := range m.Counts {
		if e := r.Catalog().Entry(id); e == nil || !e.own() || n < 1 || n > maxInstances {
			return fmt.Errorf("it has %d instances of server %q, which is not possible here", n, id)
		}
	}
	snap.Counts, snap.Damaged = m.Counts, readDamage(m.Damaged)
	ordinals := m.Spaces
	if m.Workspace {
		ordinals = append([]int{0}, ordinals...)
	}
	last := -1
	for _, n := range ordinals {
		if n <= last || n >= maxInstances {
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
	want := sum.Sum(nil)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(in.r, got); err != nil || !bytes.Equal(got, want) {
		return errors.New("its checksum is wrong: it is damaged or not whole")
	}
	if _, err := in.r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind its end")
	}
	return nil
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
