//go:build linux && (amd64 || arm64)

package sandbox

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/parcel"
)

const (
	maxHello    = 1 << 20
	maxUnread   = 64 << 10 // as much as a pipe holds
	maxFeatures = 512
)

var (
	versionText = regexp.MustCompile(`^[0-9A-Za-z.+_-]{0,100}$`)
	archText    = regexp.MustCompile(`^[0-9a-z]{1,16}$`)
	featureText = regexp.MustCompile(`^[0-9a-z_.]{1,32}$`)
	digestText  = regexp.MustCompile(`^[0-9a-f]{8,128}$`)
)

// Import implements driver.Keeper. The stream is not trusted: what it makes lies in dir
// and leads nowhere else, and there is a bound on how much.
func (d *Driver) Import(ctx context.Context, server, dir string, r io.Reader) (s driver.Snapshot, err error) {
	err = folder.Fill(dir, func() (err error) {
		s, err = d.importInto(ctx, server, dir, r)
		return err
	})
	if err != nil {
		return driver.Snapshot{}, fmt.Errorf("server %q: import a snapshot: %w", server, err)
	}
	return s, nil
}

func (d *Driver) importInto(ctx context.Context, server, dir string, r io.Reader) (driver.Snapshot, error) {
	var head exportHeader
	in, err := exportForm.Read(ctx, r, d.opts.ImportBytes, d.opts.ImportFiles, &head)
	if err != nil {
		return driver.Snapshot{}, err
	}
	i := &importer{in: in, dir: dir, rec: stateRecord{Image: head.Image, Dirs: head.Dirs}, made: make(map[string]bool)}
	if head.Image != nil {
		if err := d.admit(server, i); err != nil {
			return driver.Snapshot{}, err
		}
	}
	if err := i.run(); err != nil {
		return driver.Snapshot{}, err
	}
	if err := i.rec.write(dir, false); err != nil {
		return driver.Snapshot{}, err
	}
	s := driver.Snapshot{Driver: driverName, Server: server, Carries: driver.CarryFiles, Dir: dir, Size: in.Size}
	if i.rec.Image != nil {
		s.Carries, s.Runs = driver.CarryMemory, true
		d.kept.note(i.rec.Image)
	}
	return s, nil
}

// admit looks whether the memory in a parcel can be used here. Where it can't and
// there are directories, they come without it.
func (d *Driver) admit(server string, i *importer) error {
	if err := i.rec.Image.valid(); err != nil {
		return err
	}
	switch err := d.fits(*i.rec.Image); {
	case err == nil:
	case len(i.rec.Dirs) > 0:
		d.opts.Log.Warn("a snapshot is imported without the memory in it, which does not fit here; the server begins anew on its directories", "server", server, "error", err)
		i.rec.Image, i.without = nil, true
	default:
		return fmt.Errorf("it does not fit here: %w; make it again here", err)
	}
	if i.rec.Image != nil {
		// A new id, whatever it says: equal ids mean equal memories.
		i.rec.Image.ID, i.rec.Image.Unread, i.rec.Image.Needs = rand.Text(), nil, nil
	}
	return nil
}

// valid refuses what no Tine says of a memory.
func (i imageInfo) valid() error {
	switch {
	case !hashName.MatchString(i.Runsc):
		return errors.New("it does not say which binary made it")
	case !versionText.MatchString(i.GVisor), !archText.MatchString(i.Arch),
		i.Base != "" && !digestText.MatchString(i.Base), i.Program != "" && !digestText.MatchString(i.Program),
		len(i.CPU) > maxFeatures, slices.ContainsFunc(i.CPU, func(f string) bool { return !featureText.MatchString(f) }),
		i.Size <= 0:
		return errors.New("what it says of its memory is not possible")
	}
	return nil
}

// importer makes what is in a parcel.
type importer struct {
	in      *parcel.Reader
	dir     string
	rec     stateRecord
	without bool // its memory is left out
	dirs    *dirs.Importer
	made    map[string]bool // of the entries that are no directory's
}

func (i *importer) run() (err error) {
	if err := os.Mkdir(dirsOf(i.dir), 0o700); err != nil {
		return err
	}
	if i.rec.Image != nil {
		if err := os.Mkdir(imageOf(i.dir), 0o700); err != nil {
			return err
		}
	}
	if i.dirs, err = dirs.Import(i.in, dirsName, i.rec.Dirs, dirsOf(i.dir)); err != nil {
		return err
	}
	defer i.dirs.Close()
	if err := i.in.Each(i.entry); err != nil {
		return err
	}
	if err := i.dirs.Finish(); err != nil {
		return err
	}
	if i.rec.Image != nil {
		return i.rec.Image.check(imageOf(i.dir))
	}
	return nil
}

// entry makes one file, or lets the directories do it.
func (i *importer) entry(h *tar.Header) error {
	file, ofImage := strings.CutPrefix(h.Name, imageName+"/")
	if !ofImage && h.Name != exportHello && h.Name != exportUnread {
		return i.dirs.Entry(h)
	}
	switch {
	case i.rec.Image == nil && !i.without, i.made[h.Name], ofImage && !slices.Contains(imageFiles, file):
		return errors.New("it has no place in a state")
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("it is not a file (type %q)", h.Typeflag)
	}
	i.made[h.Name] = true
	switch {
	case i.without:
		return nil
	case ofImage:
		return i.file(file)
	case h.Name == exportUnread:
		b, err := i.text(h, maxUnread)
		i.rec.Image.Unread = b
		return err
	}
	b, err := i.text(h, maxHello)
	if err == nil && (!json.Valid(b) || !bytes.HasPrefix(bytes.TrimSpace(b), []byte("{"))) {
		err = errors.New("it is not what a server says in its handshake")
	}
	i.rec.Hello = b
	return err
}

// text reads a small entry.
func (i *importer) text(h *tar.Header, limit int64) ([]byte, error) {
	if h.Size > limit {
		return nil, fmt.Errorf("it has more than %d bytes, which is the limit", limit)
	}
	var b bytes.Buffer
	err := i.in.Copy(&b)
	return b.Bytes(), err
}

func (i *importer) file(name string) error {
	f, err := os.OpenFile(filepath.Join(imageOf(i.dir), name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(i.in.Copy(f), f.Close())
}
