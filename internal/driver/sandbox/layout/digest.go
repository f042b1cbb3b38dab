package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// databases are what changes when packages of a system do.
var databases = []string{
	"/var/lib/dpkg/status", "/lib/apk/db/installed", "/usr/lib/apk/db/installed", "/var/lib/pacman/local",
	"/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/var/lib/rpm/Packages.db", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/Packages.db",
}

// digest is what tells roots apart. It looks at few files: a root that is not the
// same must not be taken for the same because somebody upgraded the system.
func (p *planner) digest(l *Layout) string {
	stamps := slices.Clone(p.stamps)
	switch {
	case p.w.Mode != Dir:
		stamps = append(stamps, databases...)
	case p.w.Image == "":
		stamps = append(stamps, p.w.Dir)
		for _, at := range databases {
			stamps = append(stamps, path.Join(p.w.Dir, at))
		}
	}
	slices.Sort(stamps)
	parts := slices.Clone(l.Parts)
	if p.w.Image != "" {
		// Where an image was unpacked does not matter.
		if real, _, err := p.host.real(p.w.Dir); err == nil {
			for i := range parts {
				for _, at := range []*string{&parts[i].Source, &parts[i].Of} {
					if within(real, *at) {
						*at = below("image:", real, *at)
					}
				}
			}
		}
	}
	parts = whole(parts)
	sum := sha256.New()
	_ = json.NewEncoder(sum).Encode([]any{parts, l.Masks, p.w.Image})
	for _, at := range slices.Compact(stamps) {
		if _, info, err := p.host.stat(at); err == nil {
			fmt.Fprintf(sum, "%q %d %d\n", at, info.Size(), info.ModTime().UnixNano())
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// whole has directories in place of their entries: what comes and goes in one that
// had to be split is no more than what does in one that had not.
func whole(parts []control.Part) []control.Part {
	var all []control.Part
	split := map[string]bool{}
	for _, part := range parts {
		if part.Of != "" {
			if split[part.Of] {
				continue
			}
			split[part.Of] = true
			part = control.Part{Source: part.Of, Write: part.Write}
		}
		all = append(all, part)
	}
	return all
}
