// Package image unpacks the archive of a container image into a folder, once, to
// be the root of sandboxes. It reads what docker save and podman save write, the
// tar of an OCI image layout, and the plain tar of a root filesystem; each may be
// compressed with gzip or bzip2, and so may its layers.
//
//	store := &image.Store{Dir: dir}
//	img, err := store.Get(ctx, "/images/server.tar")   // minutes the first time, nothing later
//
// A store is a folder with one owner at a time:
//
//	HASH/image.json       what the image says of itself
//	HASH/root/            its files
//	HASH.RANDOM.part/     one that is being unpacked, or was cut; Sweep removes it
//	HASH.seen.json        which archive, by its place, size, time and inode, has which hash
//
// An archive is not trusted. Nothing in it can write outside of the root: names
// that lead up are refused, and links are followed one name at a time, inside.
// There are no devices and no setuid programs in what is unpacked; everything is
// ours and can be read by every user inside. It works as an ordinary user.
package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver/flight"
)

// What a caller may want to tell apart. The message says the rest.
var (
	ErrFormat = errors.New("it is not an image") // nothing that is known, or damaged
	ErrUnsafe = errors.New("it must not be used")
	ErrLimit  = errors.New("over a limit")
)

// Limits bound one image. Zero values have defaults.
type Limits struct {
	Bytes int64         // unpacked; default 16 GiB
	Files int           // with directories, links and what is left out; default 1,000,000
	Links int           // hard links; default 200,000
	Path  int           // bytes of a path; default 4096
	Time  time.Duration // default 15 minutes
}

func (l Limits) filled() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 16 << 30
	}
	if l.Files <= 0 {
		l.Files = 1_000_000
	}
	if l.Links <= 0 {
		l.Links = 200_000
	}
	if l.Path <= 0 {
		l.Path = 4096
	}
	if l.Time <= 0 {
		l.Time = 15 * time.Minute
	}
	return l
}

// Store keeps unpacked images in a folder. It must not be copied once it is used;
// its methods may be called at once.
type Store struct {
	Dir      string
	Limits   Limits
	Progress func(line string) // called from one goroutine an image; must not block long
	Log      *slog.Logger

	sync     func(dir string) error // in tests; on a disk that others use it takes long
	files    flight.Group[string]   // by archive, to its hash
	unpacked flight.Group[Image]    // by hash

	mu    sync.Mutex
	parts map[string]bool // that are being unpacked
}

// Image is an unpacked image.
type Image struct {
	Dir    string // its root
	Digest string // of the archive: sha256:HEX
	Config Config
}

// Config is what an image says of how it is run, as far as it is heeded. A root
// filesystem says nothing.
type Config struct {
	Env []string `json:"env,omitempty"`
}

// Get returns the image of an archive, and unpacks it where that is not done.
// Several that want the same at once wait for one, which ends early when all of
// them have left.
func (s *Store) Get(ctx context.Context, path string) (Image, error) {
	if err := s.open(); err != nil {
		return Image{}, err
	}
	at, err := filepath.Abs(path)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", path, err)
	}
	info, err := os.Stat(at)
	if err != nil {
		return Image{}, fmt.Errorf("image %s can't be read: %w; mend the path", path, unwrapped(err))
	}
	if !info.Mode().IsRegular() {
		return Image{}, fmt.Errorf("image %s is not a file; give the archive that docker save writes", path)
	}
	was := stampOf(at, info)
	hash, err := s.files.Do(ctx, was.key(), func(ctx context.Context) (string, error) { return s.hash(ctx, was) })
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", path, err)
	}
	img, err := s.unpacked.Do(ctx, hash, func(ctx context.Context) (Image, error) { return s.image(ctx, was, hash) })
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", path, err)
	}
	return img, nil
}

// open makes the folder.
func (s *Store) open() error {
	if !filepath.IsAbs(s.Dir) {
		return fmt.Errorf("the folder of images is not a whole path: %q", s.Dir)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("make the folder of images: %w", err)
	}
	return nil
}

func (s *Store) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}

func (s *Store) progress(format string, args ...any) {
	if s.Progress != nil {
		s.Progress(fmt.Sprintf(format, args...))
	}
}

// unwrapped is an error without the path, which the message has.
func unwrapped(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func size(bytes int64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", (bytes+1023)>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
