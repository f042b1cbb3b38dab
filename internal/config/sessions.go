package config

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	// SnapshotPrefix begins a template that is a snapshot and no path.
	SnapshotPrefix = "snapshot:"
	// noBound is the word for a bound of zero.
	noBound = "off"

	mostSessions = 1_000_000
	MaxBytes     = 1 << 50
)

// bound is a size that may be off.
func (o Object) bound(key string, dst *int64) bool {
	n, ok := o.Lookup(key)
	if ok && (n.Text == noBound || n.Text == "0") && n.Scalar() {
		*dst = 0
		return true
	}
	return o.Size(key, dst, 1<<20, MaxBytes)
}

var percentage = regexp.MustCompile(`^([0-9]{1,3}(?:\.[0-9]{1,3})?) ?%$`)

// share is a bound that may be written as a part of a whole, in percent.
func (o Object) share(key string, dst *int64, whole func() int64) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape == ShapeString && strings.HasSuffix(strings.TrimSpace(n.Text), "%") {
		m := percentage.FindStringSubmatch(strings.TrimSpace(n.Text))
		if m == nil {
			o.Wrong(key, n, "%s is not a percentage; write it like 75%%, or as a size like 8GiB", n.Shown())
			return false
		}
		part, err := strconv.ParseFloat(m[1], 64)
		switch all := whole(); {
		case err != nil || part <= 0 || part > 100:
			o.Wrong(key, n, "%s is out of range; want more than 0%% and at most 100%%, or off for no bound", n.Shown())
			return false
		case all <= 0:
			o.Wrong(key, n, "how much memory this machine has is not known here; write a size like 8GiB")
			return false
		default:
			*dst = partOf(all, part)
		}
		return true
	}
	return o.bound(key, dst)
}

// percent is a part of something, from 1% to all of it.
func (o Object) percent(key string, dst *int) bool {
	n, ok := o.Lookup(key)
	if !ok {
		return false
	}
	m := percentage.FindStringSubmatch(strings.TrimSpace(n.Text))
	if m == nil || !n.Scalar() {
		o.Wrong(key, n, "%s is not a percentage; write it like 90%%", n.Shown())
		return false
	}
	part, err := strconv.Atoi(m[1])
	if err != nil || part < 1 || part > 100 {
		o.Wrong(key, n, "%s is out of range; want 1%% to 100%%, without a fraction", n.Shown())
		return false
	}
	*dst = part
	return true
}

// partOf is so many percent of a whole, in MiB where that is not nothing.
func partOf(whole int64, percent float64) int64 {
	part := int64(float64(whole) * percent / 100)
	return max(part&^(1<<20-1), min(part, 1<<20))
}

// readWorkspace reads the top's: a word, a template, or a map with one.
func readWorkspace(o Object, key string, to *Workspace) bool {
	n, ok := o.Lookup(key)
	if !ok || n.Shape == ShapeNull {
		return false
	}
	to.On = true
	switch {
	case n.Shape == ShapeBool || n.From != "" && (n.Text == "true" || n.Text == "false"):
		if o.Boolean(key, &to.On) && !to.On {
			o.d.workspaceOff = n
		}
	case n.Shape == ShapeString:
		o.d.template(o, key, &to.Template, true)
	case n.Shape == ShapeMap:
		if w, ok := o.Child(key, workspaceTable.Names()); ok {
			workspaceTable.Read(w, to)
		}
	default:
		o.Wrong(key, n, "got %s, want true, false, the path of a template, or {template: PATH, path: PATH}", n.Shown())
	}
	return true
}

// The workspace hides what else is at its path, so that it can't be where every
// program needs something, nor where a sandbox has something of its own.
var (
	takenPaths = []string{"/home", "/home/user", "/mnt", "/opt", "/root", "/srv", "/var"}
	takenBelow = []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/state", "/sys", "/tmp", "/usr", "/var/tmp",
	}
)

// readWorkspacePath reads where servers see the workspace.
func readWorkspacePath(w Object, key string, dst *string) bool {
	if !w.Text(key, dst, DefaultWorkspace) {
		return false
	}
	n, given := w.n.Get(key), *dst
	*dst = path.Clean(given)
	taken := *dst == "/" || slices.Contains(takenPaths, *dst) || slices.ContainsFunc(takenBelow, func(dir string) bool {
		return *dst == dir || strings.HasPrefix(*dst, dir+"/")
	})
	switch {
	case !path.IsAbs(given):
		w.Wrong(key, n, "%s is not a whole path; write it like %s", n.Shown(), DefaultWorkspace)
	case taken:
		w.Wrong(key, n, "%s would hide what programs need there; take a path of its own, like %s or /data", n.Shown(), DefaultWorkspace)
	case *dst == DefaultWorkspace:
		*dst = ""
	}
	return true
}

// template reads a path, or with snapshots the name of one.
func (d *decoder) template(o Object, key string, dst *string, snapshots bool) bool {
	if !o.Text(key, dst, "./template") {
		return false
	}
	n := o.n.Get(key)
	name, isSnapshot := strings.CutPrefix(*dst, SnapshotPrefix)
	switch {
	case strings.TrimSpace(*dst) == "":
		o.Wrong(key, n, "is empty; name a template, or remove it")
	case isSnapshot && !snapshots:
		o.Wrong(key, n, "%s is a snapshot, and this begins as a copy of a directory; give its path", n.Shown())
	case isSnapshot && strings.TrimSpace(name) == "":
		o.Wrong(key, n, "%s names no snapshot; write %sNAME", n.Shown(), SnapshotPrefix)
	case !isSnapshot:
		*dst = d.res.paths.resolve(*dst)
		d.seeds = append(d.seeds, Visible{At: n.Pos, Where: join(o.Path, key), Path: *dst})
	}
	return true
}

// checkWorkspace gives sessions a workspace where a server sees it.
func (d *decoder) checkWorkspace(c *Config) {
	c.noWorkspace = d.workspaceOff != nil
	for i := range c.Servers {
		s := &c.Servers[i]
		if !s.Workspace {
			continue
		}
		if n := d.workspaceOff; n != nil {
			mend := "set servers." + s.ID + ".workspace: false"
			if s.Builtin == builtinFiles {
				mend = "give it a folder of its own with servers." + s.ID + ".settings.root"
			}
			d.fail(n.Pos, "workspace: is off, but server %q sees it; remove this, or %s", s.ID, mend)
			return
		}
		c.Workspace.On, s.WorkspacePath = true, c.Workspace.Path
	}
	d.spaceTemplate(c)
}

// spaceTemplate has the workspace begin with the template of the server that serves
// it, which can be only one.
func (d *decoder) spaceTemplate(c *Config) {
	from := "workspace.template"
	for i := range c.Servers {
		s := &c.Servers[i]
		at, ok := d.spaceTemplates[s.ID]
		if !ok {
			continue
		}
		if was := c.Workspace.Template; was != "" && was != s.Template {
			d.fail(at, "servers.%s.template: the workspace, which it serves, begins with %s already; keep one of them", s.ID, from)
			return
		}
		from = "servers." + s.ID + ".template"
		c.Workspace.Template, s.Template = s.Template, ""
		if s.hidden["template"] {
			c.hidden["workspace.template"] = true
		}
	}
}
