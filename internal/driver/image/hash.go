package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

const (
	seenSuffix = ".seen.json"
	maxRecord  = 4 << 20
)

var hashName = regexp.MustCompile(`^[0-9a-f]{64}$`)

// stamp identifies an archive without reading it.
type stamp struct {
	Path  string `json:"path"`
	Size  int64  `json:"size"`
	Time  int64  `json:"time"`
	Inode string `json:"inode"`
}

func stampOf(path string, info os.FileInfo) stamp {
	return stamp{Path: path, Size: info.Size(), Time: info.ModTime().UnixNano(), Inode: inode(info)}
}

func (s stamp) key() string { return fmt.Sprintf("%s %d %d %s", s.Path, s.Size, s.Time, s.Inode) }

// seen is a hash that is known of an archive.
type seen struct {
	stamp
	Hash string `json:"hash"`
}

func (s *Store) seenFile(path string) string {
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(s.Dir, hex.EncodeToString(sum[:])+seenSuffix)
}

// settled is how long ago an archive must have been written for its time to differ from
// the next one's: clocks of filesystems are coarse.
const settled = 3 * time.Second

// hash is the hash of an archive, which is read only when it is not known.
func (s *Store) hash(ctx context.Context, was stamp) (string, error) {
	var known seen
	if b, err := readFile(s.seenFile(was.Path), maxRecord); err == nil && json.Unmarshal(b, &known) == nil && known.stamp == was && hashName.MatchString(known.Hash) {
		return known.Hash, nil
	}
	f, err := os.Open(was.Path)
	if err != nil {
		return "", fmt.Errorf("it can't be read: %w; mend the path or its permissions", unwrapped(err))
	}
	defer f.Close()
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limits.filled().Time, s.late())
	defer cancel()
	sum := sha256.New()
	if _, err := io.Copy(sum, &reading{ctx: ctx, r: f, report: s.reporter("reading image " + filepath.Base(was.Path))}); err != nil {
		return "", err
	}
	if err := was.same(f); err != nil {
		return "", err
	}
	known = seen{was, hex.EncodeToString(sum.Sum(nil))}
	if began.Sub(time.Unix(0, was.Time)) > settled {
		b, err := json.Marshal(known)
		if err == nil {
			err = folder.Write(s.seenFile(was.Path), b)
		}
		if err != nil {
			s.log().Warn("can't remember an image; it is read again the next time", "image", was.Path, "error", err)
		}
	}
	return known.Hash, nil
}

// same reports that an archive was changed meanwhile.
func (s stamp) same(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if stampOf(s.Path, info) != s {
		return errors.New("it was changed while it was read; try again when it is whole")
	}
	return nil
}

func (s *Store) late() error {
	return fmt.Errorf("%w: it takes longer than %s; use a smaller image, or raise the limit", ErrLimit, s.Limits.filled().Time)
}

// reporter says how far something is, once a second.
func (s *Store) reporter(what string) func(bytes int64) {
	began, last := time.Now(), time.Now()
	return func(bytes int64) {
		if now := time.Now(); now.Sub(last) >= time.Second {
			last = now
			s.progress("%s: %s, %s", what, size(bytes), now.Sub(began).Round(time.Second))
		}
	}
}

// reading is a reader that ends with its context and tells how far it is.
type reading struct {
	ctx    context.Context
	r      io.Reader
	n      int64
	report func(int64)
}

func (r *reading) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.r.Read(b)
	r.n += int64(n)
	if r.report != nil {
		r.report(r.n)
	}
	return n, err
}

// readFile reads a file that is not longer than max.
func readFile(name string, max int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, max)
}

func readAll(r io.Reader, max int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err == nil && int64(len(b)) > max {
		err = fmt.Errorf("%w: it is longer than %s", ErrLimit, size(max))
	}
	return b, err
}
