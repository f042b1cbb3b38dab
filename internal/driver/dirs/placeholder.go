package dirs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/tine-mcp/tine/internal/driver"
)

// placeholder is what args, env and cwd say for a path that is known only when an
// instance starts.
var placeholder = regexp.MustCompile(`\$\{(?:(workspace)|state\.([^}]*))\}`)

// Placed reports whether a text has such a path in it.
func Placed(text string) bool { return placeholder.MatchString(text) }

// Places are where a program finds what its session keeps, as it sees them.
type Places struct {
	State     string // the folder with the directories in it
	Workspace string
}

// FillIn puts the paths of the state and the workspace where the spec asks for
// them. A server that sees the workspace and has no folder of its own runs there.
func FillIn(spec driver.Spec, at Places) (driver.Spec, error) {
	f := filler{spec: spec, at: at}
	spec.Args = slices.Clone(spec.Args)
	for n, arg := range spec.Args {
		spec.Args[n] = f.text(arg, "args")
	}
	spec.Env = maps.Clone(spec.Env)
	for name, value := range spec.Env {
		spec.Env[name] = f.text(value, "env")
	}
	spec.Cwd = f.text(spec.Cwd, "cwd")
	if spec.Cwd == "" && spec.Workspace != nil {
		spec.Cwd = f.workspace("cwd")
	}
	return spec, errors.Join(f.errs...)
}

type filler struct {
	spec driver.Spec
	at   Places
	errs []error
}

func (f *filler) text(s, where string) string {
	return placeholder.ReplaceAllStringFunc(s, func(match string) string {
		parts := placeholder.FindStringSubmatch(match)
		if parts[1] != "" {
			return f.workspace(where)
		}
		return f.dir(parts[2], where)
	})
}

func (f *filler) dir(name, where string) string {
	id := f.spec.Server
	switch {
	case !slices.ContainsFunc(f.spec.Dirs, func(d driver.StateDir) bool { return d.Name == name }):
		f.errs = append(f.errs, fmt.Errorf("servers.%s.%s has ${state.%s}, and no such directory is declared; add servers.%s.state: [%s]", id, where, name, id, name))
	case f.spec.State == "":
		f.errs = append(f.errs, fmt.Errorf("servers.%s.%s has ${state.%s}, and there is no folder for the state", id, where, name))
	}
	return filepath.Join(f.at.State, name)
}

func (f *filler) workspace(where string) string {
	id := f.spec.Server
	if f.spec.Workspace == nil {
		f.errs = append(f.errs, fmt.Errorf("servers.%s.%s has ${workspace}, and the server does not see the session's; add servers.%s.workspace: true", id, where, id))
		return ""
	}
	if f.spec.Workspace.Dir() == "" {
		f.errs = append(f.errs, errors.New("the workspace is not a folder, so that no program can see it"))
	}
	return f.at.Workspace
}
