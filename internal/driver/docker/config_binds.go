package docker

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// drivePath is a whole path of an engine on Windows.
var drivePath = regexp.MustCompile(`^[A-Za-z]:[\\/]`)

// quietModes are options of a volume that change nothing here.
var quietModes = []string{"", "rw", "cached", "delegated", "consistent"}

// bindTable are the keys of a bind.
var bindTable = config.Table[Bind]{
	config.Put("source", func(b *Bind) *string { return &b.Source }, config.Text("./data"), "a path of the host, or the name of a volume"),
	config.Put("target", func(b *Bind) *string { return &b.Target }, config.InsidePath("/data"), "a path in the container"),
	config.Put("read_only", func(b *Bind) *bool { return &b.ReadOnly }, config.Bool().Sparing(), "whether it can only be read"),
}

// bindList is what a container sees of the host: maps, or texts as docker run -v
// takes them.
var bindList = config.List(bindTable, readBinds, "SOURCE:TARGET[:ro]")

func readBinds(c config.Object, key string, to *[]Bind) bool {
	n, ok := c.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape != config.ShapeList && n.Shape != config.ShapeNull {
		c.Wrong(key, n, "want a list, got %s; write binds: [{source: ./data, target: /data}]", n.Shape)
		return false
	}
	for i, item := range n.Items {
		at := fmt.Sprintf("%s.binds[%d]", c.Path, i)
		b := Bind{}
		switch {
		case item.Missing:
		case item.Shape == config.ShapeString:
			var err error
			if b, err = parseVolume(item.Text); err != nil {
				c.Fail(item.Pos, "%s: %s %v", at, item.Shown(), err)
			}
			if item.From != "" {
				c.Hide(fmt.Sprintf("binds.%d.source", i))
				c.Hide(fmt.Sprintf("binds.%d.target", i))
			}
		default:
			in, ok := c.Item("binds", i, item, bindTable.Names())
			if !ok {
				break
			}
			for _, key := range []string{"source", "target"} {
				if in.Get(key) == nil {
					c.Fail(item.Pos, "%s: %s is missing; write {source: ./data, target: /data}", at, key)
				}
			}
			bindTable.Read(in, &b)
		}
		if err := bindSource(c, &b); err != nil {
			c.Fail(item.Pos, "%s: %v", at, err)
		}
		*to = append(*to, b)
	}
	return true
}

// bindSource makes the source of a bind a path of this machine, unless it is the
// name of a volume.
func bindSource(c config.Object, b *Bind) error {
	switch {
	case b.Source == "":
		return nil
	case ownedByTine.MatchString(b.Source) && volumeName.MatchString(b.Source):
		return fmt.Errorf("volumes whose names begin with %s are Tine's own, which it removes; use another", ownPrefix)
	case volumeName.MatchString(b.Source) || drivePath.MatchString(b.Source):
		return nil
	}
	b.Source = c.Resolve(b.Source)
	if c.InFile() {
		b.Source = filepath.Clean(b.Source)
	}
	return nil
}

// parseVolume reads SOURCE:TARGET[:OPTIONS]. Its errors say what is wrong with the
// text and don't repeat it.
func parseVolume(text string) (Bind, error) {
	source, rest, ok := strings.Cut(text, ":")
	if len(source) == 1 && ok && strings.HasPrefix(strings.ReplaceAll(rest, `\`, "/"), "/") && strings.Contains(rest, ":") {
		// A drive and not a volume of one letter.
		drive := source
		source, rest, ok = strings.Cut(rest, ":")
		source = drive + ":" + source
	}
	if !ok {
		return Bind{}, errors.New("is a volume without a source, which would not be found again; name it as state, or write SOURCE:TARGET")
	}
	target, options, _ := strings.Cut(rest, ":")
	b := Bind{Source: source, Target: target}
	for _, o := range strings.Split(options, ",") {
		switch {
		case o == "ro":
			b.ReadOnly = true
		case !slices.Contains(quietModes, o):
			return b, errors.New("has an option that Tine does not take over; use ro or rw")
		}
	}
	if source == "" || !path.IsAbs(target) {
		return b, errors.New("is not SOURCE:TARGET with a whole path in the container; write it like ./data:/data:ro")
	}
	b.Target = path.Clean(target)
	return b, nil
}

// parseMount reads what docker run --mount takes; tmpfs is set where it is one.
func parseMount(text string) (b Bind, tmpfs string, err error) {
	kind := "volume"
	var size string
	for _, field := range strings.Split(text, ",") {
		key, value, hasValue := strings.Cut(field, "=")
		switch strings.ToLower(strings.TrimSpace(key)) {
		case "type":
			kind = value
		case "source", "src":
			b.Source = value
		case "target", "dst", "destination":
			b.Target = value
		case "readonly", "ro":
			b.ReadOnly = !hasValue || value == "true" || value == "1"
		case "tmpfs-size":
			size = value
		case "consistency":
		default:
			return b, "", errors.New("has an option that Tine does not take over; use type, source, target and readonly")
		}
	}
	if !path.IsAbs(b.Target) {
		return b, "", errors.New("has no target=PATH with a whole path in the container")
	}
	b.Target = path.Clean(b.Target)
	switch kind {
	case "bind", "volume":
		if b.Source == "" {
			return b, "", errors.New("has no source=, and a volume without one would not be found again; name it as state, or add a source")
		}
		if kind == "volume" && !volumeName.MatchString(b.Source) {
			return b, "", errors.New("has a path for the name of a volume; write type=bind")
		}
		if kind == "bind" && volumeName.MatchString(b.Source) {
			b.Source = "./" + b.Source
		}
		return b, "", nil
	case "tmpfs":
		if size != "" {
			return b, b.Target + ":size=" + size, nil
		}
		return b, b.Target, nil
	}
	return b, "", errors.New("has a type that Tine does not take over; use bind, volume or tmpfs")
}
