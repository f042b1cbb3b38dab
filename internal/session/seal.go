package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"net/http"
	"os"

	"github.com/tine-mcp/tine/api"
)

// A Seal is how a gateway recognizes the files that it wrote. The memory of a
// program in such a file is run when it is restored: a person who may write
// such a file may run anything that the walls of its server allow.
type Seal struct{ key [sha256.Size]byte }

// OpenSeal reads the key in a file, or makes it.
func OpenSeal(path string) (*Seal, error) {
	s := &Seal{}
	b, err := os.ReadFile(path)
	switch {
	case err == nil && len(b) == len(s.key):
		copy(s.key[:], b)
		return s, nil
	case err == nil:
		return nil, fmt.Errorf("the key in %s has %d bytes and should have %d; remove it, and exported snapshots of programs need an operator to be imported again", path, len(b), len(s.key))
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("reading the key of exported snapshots: %w", err)
	}
	_, _ = rand.Read(s.key[:]) // it never fails
	if err := s.write(path); err != nil {
		return nil, fmt.Errorf("making the key of exported snapshots: %w", err)
	}
	return s, nil
}

// write has the key on disk whole or not at all.
func (s *Seal) write(path string) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(s.key[:])
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// of is the seal of what was summed up so far. One that there is no key for is
// no seal: it fits nothing.
func (s *Seal) of(sum hash.Hash) []byte {
	if s == nil {
		return nil
	}
	mac := hmac.New(sha256.New, s.key[:])
	mac.Write([]byte(fileMagic))
	mac.Write(sum.Sum(nil))
	return mac.Sum(nil)
}

// foreignProgram refuses a state that holds what is run and comes from elsewhere.
func foreignProgram(member string) error {
	return &api.Error{
		Kind: api.KindRefused, Status: http.StatusForbidden, Server: member,
		Message: fmt.Sprintf("the file has a program of server %q in it, and was not exported by this gateway as it is; an operator may import it", member),
	}
}
