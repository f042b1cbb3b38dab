package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Sums remembers the checksums of files, so that each is read again only when it
// may have changed. The zero value is useful, and its methods may run at once.
type Sums struct {
	mu  sync.Mutex
	all map[string]summed
}

type summed struct {
	info fs.FileInfo
	sum  string
}

func (s summed) still(info fs.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, info) && s.info.Size() == info.Size() && s.info.ModTime().Equal(info.ModTime())
}

const (
	// maxSums bounds how many are remembered.
	maxSums = 4096
	// settled is how old a change must be for the next one to have another time.
	settled = 2 * time.Second
)

// of returns the checksum of a regular file.
func (s *Sums) of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if s != nil {
		s.mu.Lock()
		was := s.all[path]
		s.mu.Unlock()
		if was.still(info) {
			return was.sum, nil
		}
	}
	h := sha256.New()
	if _, err := io.CopyBuffer(h, struct{ io.Reader }{f}, make([]byte, 256<<10)); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if s != nil && time.Since(info.ModTime()) > settled {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.all == nil || len(s.all) >= maxSums {
			s.all = make(map[string]summed)
		}
		s.all[path] = summed{info, sum}
	}
	return sum, nil
}
