package process

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/windows"

	"github.com/tine-mcp/tine/internal/driver/family"
)

const pathSeparators = `/\:`

const errNotAProgram = windows.ERROR_BAD_EXE_FORMAT

// runnable finds path itself, or with one of the endings of programs.
func runnable(path string, env *family.Environment) (string, error) {
	endings := env.Get("PATHEXT")
	if endings == "" {
		endings = ".COM;.EXE;.BAT;.CMD"
	}
	list := filepath.SplitList(strings.ToLower(endings))
	for _, ending := range list {
		if ending != "" && strings.EqualFold(filepath.Ext(path), ending) {
			return regular(path)
		}
	}
	for _, ending := range list {
		if found, err := regular(path + ending); err == nil {
			return found, nil
		}
	}
	return "", fs.ErrNotExist
}

func regular(path string) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if st.IsDir() {
		return "", syscall.EISDIR
	}
	return path, nil
}
