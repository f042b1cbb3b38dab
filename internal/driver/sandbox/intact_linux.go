//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sealRecord adds a line with the checksum of a record.
func sealRecord(b []byte) []byte {
	return fmt.Appendf(bytes.Clone(b), "\n%08x\n", crc32.Checksum(b, castagnoli))
}

// unsealRecord checks a record and gives it without its checksum, which one of an
// earlier version does not have.
func unsealRecord(b []byte) ([]byte, error) {
	body, sum, sealed := bytes.Cut(b, []byte("\n"))
	if !sealed && bytes.HasPrefix(b, []byte("{")) && bytes.HasSuffix(b, []byte("}")) {
		return b, nil
	}
	if fmt.Sprintf("%08x\n", crc32.Checksum(body, castagnoli)) != string(sum) {
		return nil, errors.New("its checksum is wrong")
	}
	return body, nil
}

// sumImage is the checksum of the files of a memory. It reads all of them.
func sumImage(dir string) (string, error) {
	all := crc32.New(castagnoli)
	for _, name := range imageFiles {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		h := crc32.New(castagnoli)
		n, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 1<<20))
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s %d %08x\n", name, n, h.Sum32())
	}
	return fmt.Sprintf("%08x", all.Sum32()), nil
}

// intact verifies the memory in a state before a program goes on from it.
func (d *Driver) intact(spec driver.Spec, i *imageInfo) error {
	return d.damaged(spec, d.verify(spec, i))
}

// verify is intact without a word to the session. It reads the memory once, and not where
// this gateway wrote it.
func (d *Driver) verify(spec driver.Spec, i *imageInfo) error {
	dir := imageOf(spec.State)
	if i.Sum == "" || d.kept.verified(i.ID, false) {
		return nil
	}
	err := i.check(dir)
	if err != nil {
		err = &clone.Damage{Path: dir, Offset: -1, Reason: err.Error()}
	} else if sum, sumErr := sumImage(dir); sumErr != nil {
		return fmt.Errorf("verify its memory: %w", sumErr)
	} else if sum != i.Sum {
		err = &clone.Damage{Path: dir, Offset: -1, Reason: "the checksum of its memory is wrong"}
	}
	if err == nil {
		d.kept.verified(i.ID, true)
	}
	return err
}

// damaged tells the session where an error says that its stored data is damaged.
func (d *Driver) damaged(spec driver.Spec, err error) error {
	err = driver.Damaged(spec.Whose(), err)
	if spec.OnDamage != nil && errors.As(err, new(*driver.DamageError)) {
		spec.OnDamage(err)
	}
	return err
}
