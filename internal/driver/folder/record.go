package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
)

// Records is how a driver keeps what is known about each of its instances: in the
// instance's folder for the sweep, in its handle for the adoption.
type Records[R any] struct {
	File string       // its name in the folder
	What string       // what an instance is, for errors: process, container
	Is   func(R) bool // whether it says which one it is
}

// Data is a record as JSON.
func (k Records[R]) Data(r R) json.RawMessage {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// Write puts a record into a folder, whole or not at all. It need not survive a
// power cut: neither does the instance.
func (k Records[R]) Write(dir string, r R) error {
	if err := Write(filepath.Join(dir, k.File), k.Data(r)); err != nil {
		return fmt.Errorf("write the record of the %s: %w", k.What, err)
	}
	return nil
}

// Read reads the record in a folder. fs.ErrNotExist means that it has none.
func (k Records[R]) Read(dir string) (R, error) {
	b, err := os.ReadFile(filepath.Join(dir, k.File))
	if err != nil {
		var none R
		return none, err
	}
	return k.Parse(b)
}

// Parse reads a record.
func (k Records[R]) Parse(b []byte) (R, error) {
	var r, none R
	if err := json.Unmarshal(b, &r); err != nil {
		return none, fmt.Errorf("read the record of the %s: %w", k.What, err)
	}
	if !k.Is(r) {
		return none, fmt.Errorf("read the record of the %s: %w", k.What, errNone)
	}
	return r, nil
}

var errNone = errors.New("it does not say which it is")

// Of is the record of an instance that is to be adopted. Where there is none that
// can be read, nothing can be found again and the error is driver.ErrGone.
func (k Records[R]) Of(h driver.Handle) (R, error) {
	var none R
	if !filepath.IsAbs(h.Dir) {
		return none, fmt.Errorf("the handle names no folder: %w", driver.ErrGone)
	}
	r, err := k.Parse(h.Data)
	if err != nil {
		// The folder knows it too.
		if r, err = k.Read(h.Dir); err != nil {
			return none, fmt.Errorf("neither the handle nor the folder %s say which %s it was: %w", h.Dir, k.What, driver.ErrGone)
		}
	}
	return r, nil
}
