package process

import (
	"fmt"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
)

// fillIn puts the paths of the state and the workspace where the spec asks for
// them: a child sees them where we do, but for a workspace that is mounted.
func fillIn(spec driver.Spec, m *mount) (driver.Spec, error) {
	var at dirs.Places
	if spec.State != "" {
		dir, err := filepath.Abs(spec.State)
		if err != nil {
			return spec, fmt.Errorf("find the folder of the state: %w", err)
		}
		at.State = dir
	}
	switch {
	case m != nil:
		at.Workspace = m.point
	case spec.Workspace != nil:
		at.Workspace = spec.Workspace.Dir()
	}
	return dirs.FillIn(spec, at)
}
