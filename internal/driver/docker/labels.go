package docker

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
)

// Labels of everything that is made.
const (
	labelGateway  = "tine.gateway"
	labelSession  = "tine.session"
	labelServer   = "tine.server"
	labelOrdinal  = "tine.ordinal"
	labelInstance = "tine.instance" // key of the instance's folder; of a state's where it belongs to that
	labelRole     = "tine.role"
)

// Roles: what a thing is for.
const (
	roleInstance = "instance" // goes with its instance
	roleState    = "state"    // a record names it
	roleHelper   = "helper"   // goes when what it is for is done
	roleTemplate = "template" // goes when nothing was made from it
	roleNetwork  = "network"  // goes with its last user
)

// labels are those of something that belongs to a spec. key is of the folder
// that it belongs to.
func (d *Driver) labels(spec driver.Spec, role, key string) map[string]string {
	l := make(map[string]string)
	if options(spec) != nil {
		maps.Copy(l, options(spec).Labels)
	}
	l[labelGateway] = d.opts.Gateway
	l[labelSession] = spec.Session
	l[labelServer] = spec.Server
	l[labelOrdinal] = strconv.Itoa(spec.Ordinal)
	l[labelInstance] = key
	l[labelRole] = role
	return l
}

// ours filters by the gateway.
func (d *Driver) ours() client.Filters {
	return make(client.Filters).Add("label", labelGateway+"="+d.opts.Gateway)
}

// keyOf is short for a folder.
func keyOf(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(real, filepath.Base(dir))
	}
	return digest(dir)
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:10])
}

// newName is a name for a container or volume that nothing else has.
func newName(what, server string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, server)
	return "tine-" + what + "-" + clean[:min(len(clean), 40)] + "-" + strings.ToLower(rand.Text()[:16])
}

// repository is where the images of this gateway are. The host keeps engines
// from looking for them elsewhere.
func (d *Driver) repository() string { return "localhost/tine-" + digest(d.opts.Gateway) }

// newTag is a name for an image that nothing else has.
func (d *Driver) newTag() string { return d.repository() + ":" + strings.ToLower(rand.Text()) }
