package hook

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/driver/family"
)

// Find says why the program of a hook can't be run, and what to do.
func (p *Programs) Find(command string) error {
	return Find(command, family.NewEnvironment(p.environ(), nil, "", "").Get("PATH"))
}

// Find is Programs.Find for a PATH.
func Find(command, path string) error {
	_, err := find(command, path)
	return err
}

// find finds a program on the PATH of a hook.
func find(command, path string) (string, error) {
	if strings.ContainsAny(command, `/\`) {
		found, err := exec.LookPath(command)
		if err == nil {
			return found, nil
		}
		why := err
		if e := (*exec.Error)(nil); errors.As(err, &e) {
			why = e.Err
		}
		if e := (*fs.PathError)(nil); errors.As(err, &e) {
			why = e.Err
		}
		return "", fmt.Errorf("the program %s can't be run: %w; it must be there and executable", command, why)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // it would depend on where the gateway runs
		}
		if found, err := exec.LookPath(filepath.Join(dir, command)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("the program %q is not on PATH; install it, or give its whole path", command)
}
