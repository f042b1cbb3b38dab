package clone

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// SumsName is the file in a folder that says what else is in it. It is one line of
// JSON for each entry, in the order of the names.
const SumsName = "~sums"

// sumLine is one entry of a folder.
type sumLine struct {
	Name string      `json:"name"`
	Mode fs.FileMode `json:"mode"`
	Size int64       `json:"size,omitempty"` // of a file
	Sum  string      `json:"sum,omitempty"`  // of a file's content, or of where a link leads; empty where it may not be read
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Sum writes down what is in a folder that no longer changes, as a file in it, and
// returns the checksum of that file, which Verify wants back. It reads everything
// that is in the folder, except for the names in it that begin with except: those
// may change. A folder with nothing else gets no file and no checksum.
func Sum(ctx context.Context, dir, except string) (string, error) {
	b, err := sums(ctx, dir, except)
	if err == nil && len(b) == 0 {
		return "", nil
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, SumsName), b, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("sum up folder %s: %w", dir, err)
	}
	return sumOf(b), nil
}

// Verify compares a folder with what Sum wrote down. Where it differs the error is
// a *Damage that names the first file that does.
func Verify(ctx context.Context, dir, except, sum string) error {
	path := filepath.Join(dir, SumsName)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Damage{Path: path, Offset: -1, Reason: "it is missing"}
	case err != nil:
		return fmt.Errorf("verify folder %s: %w", dir, err)
	case sumOf(b) != sum:
		return &Damage{Path: path, Offset: -1, Reason: "its checksum is wrong"}
	}
	now, err := sums(ctx, dir, except)
	if err != nil {
		return fmt.Errorf("verify folder %s: %w", dir, err)
	}
	if bytes.Equal(now, b) {
		return nil
	}
	return difference(dir, b, now)
}

func sumOf(b []byte) string { return fmt.Sprintf("%08x", crc32.Checksum(b, castagnoli)) }

// difference names the first entry in which two lists differ.
func difference(dir string, was, is []byte) error {
	then, now := json.NewDecoder(bytes.NewReader(was)), json.NewDecoder(bytes.NewReader(is))
	for {
		var a, b sumLine
		erra, errb := then.Decode(&a), now.Decode(&b)
		d := &Damage{Path: filepath.Join(dir, filepath.FromSlash(a.Name)), Offset: -1}
		switch {
		case erra != nil && errb != nil:
			return &Damage{Path: dir, Offset: -1, Reason: "it is not as it was"}
		case erra != nil || errb == nil && b.Name < a.Name:
			return &Damage{Path: filepath.Join(dir, filepath.FromSlash(b.Name)), Offset: -1, Reason: "it was added since", Extra: true}
		case errb != nil || b.Name > a.Name:
			d.Reason = "it is missing"
		case a.Mode != b.Mode:
			d.Reason = fmt.Sprintf("its mode is %s and was %s", b.Mode, a.Mode)
		case a.Size != b.Size:
			d.Offset, d.Reason = min(a.Size, b.Size), fmt.Sprintf("it has %d bytes and had %d", b.Size, a.Size)
		case a.Sum != b.Sum:
			d.Reason = "its checksum is wrong"
		default:
			continue
		}
		return d
	}
}

func sums(ctx context.Context, dir, except string) ([]byte, error) {
	root, err := os.OpenRoot(dir) // names may be longer together than one path may be
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	buf := make([]byte, 256<<10)
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || name == "." || name == SumsName {
			if errors.Is(err, fs.ErrPermission) && e != nil && e.IsDir() {
				return fs.SkipDir // its mode is there already
			}
			return err
		}
		if except != "" && strings.HasPrefix(name, except) {
			return nil
		}
		line, err := sumEntry(root, name, e, buf)
		if err != nil {
			return err
		}
		return enc.Encode(line)
	})
	return out.Bytes(), err
}

func sumEntry(root *os.Root, name string, e fs.DirEntry, buf []byte) (sumLine, error) {
	info, err := e.Info()
	if err != nil {
		return sumLine{}, err
	}
	line := sumLine{Name: filepath.ToSlash(name), Mode: info.Mode()}
	switch {
	case info.Mode().IsRegular():
		line.Size = info.Size()
		f, err := root.Open(name)
		if errors.Is(err, fs.ErrPermission) {
			return line, nil
		}
		if err != nil {
			return line, err
		}
		defer f.Close()
		h := crc32.New(castagnoli)
		if _, err := io.CopyBuffer(h, struct{ io.Reader }{f}, buf); err != nil {
			return line, err
		}
		line.Sum = fmt.Sprintf("%08x", h.Sum32())
	case info.Mode().Type() == fs.ModeSymlink:
		to, err := root.Readlink(name)
		if err != nil {
			return line, err
		}
		line.Sum = sumOf([]byte(to))
	}
	return line, nil
}
