package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// paths makes the paths of a config absolute: ~ is the home folder, and what is
// relative starts at the folder of the config.
type paths struct {
	dir  string // empty when the config did not come from a file
	home string
}

func (p paths) resolve(path string) string {
	if path == "" {
		return ""
	}
	path = p.expandHome(path)
	if p.dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(p.dir, path)
}

func (p paths) expandHome(path string) string {
	if p.home == "" || !strings.HasPrefix(path, "~") {
		return path
	}
	if path == "~" {
		return p.home
	}
	if os.IsPathSeparator(path[1]) {
		return filepath.Join(p.home, path[2:])
	}
	return path // ~other is another user's home, and a shell's business
}

// Within reports whether a path is another or lies below it.
func Within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// folderOf is the folder of a config file, absolute where that can be had.
func folderOf(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.Dir(path)
}

// workspaceOf is what editors mean by the workspace of a config: the folder
// around the editor's own.
func workspaceOf(dir string) string {
	switch filepath.Base(dir) {
	case ".vscode", ".cursor":
		return filepath.Dir(dir)
	}
	return dir
}

// readBounded reads a file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, limit)
	}
	return data, nil
}

// readIncluded reads a file that a config refers to. It must be a plain one: a
// pipe or a device could keep a reload waiting forever.
func readIncluded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a plain file")
	}
	return readBounded(path, MaxIncluded)
}
