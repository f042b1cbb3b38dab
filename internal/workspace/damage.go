package workspace

import (
	"errors"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/layer"
)

// IsDamage tells whether an error says that a workspace, or what it was frozen
// into, is not what was written, or is missing.
func IsDamage(err error) bool {
	var d *clone.Damage
	return layer.IsLost(err) || errors.As(err, &d)
}

// DamageIn is the damage that an error reports, without the failed operation where
// the two can be separated.
func DamageIn(err error) error {
	var file *clone.Damage
	var log *layer.Damage
	switch {
	case errors.As(err, &file):
		return file
	case errors.As(err, &log):
		return log
	}
	return err
}

// IsCut tells whether an error of Open says that the end of a workspace is missing.
// Open reports that once: the next Open goes on with what is left.
func IsCut(err error) bool { return errors.As(err, new(*layer.Cut)) }

// Damages counts how often reading trees in layers has met damage, in any workspace: a
// caller that sees it grow asks DamageSince.
func (w *Workspace) Damages() uint64 {
	if w.layers == nil {
		return 0
	}
	return w.layers.Damages()
}

// DamageSince tells what was met in this workspace since Damages gave n; nil for
// nothing.
func (w *Workspace) DamageSince(n uint64) error {
	if w.layers == nil {
		return nil
	}
	if d := w.layers.DamageSince(w.state, n); d != nil {
		return d
	}
	return nil
}
