package blueprint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// mostEntries bounds the blueprints of one folder.
const mostEntries = 10_000

// capabilityFolder is beside each folder of blueprints.
const capabilityFolder = "capabilities"

// Folders are where blueprints are. They are read from the start each time, so that an edit
// counts at once.
type Folders []string

// capabilities are the folders of capabilities.
func (f Folders) capabilities() []string {
	var list []string
	for _, dir := range f {
		if dir := filepath.Join(dir, "..", capabilityFolder); !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list
}

// Names are those of all blueprints, in order.
func (f Folders) Names() ([]string, error) { return namesIn(f, "agent") }

// namesIn are the names of what folders hold.
func namesIn(dirs []string, kind string) ([]string, error) {
	var names []string
	var errs []error
	for _, dir := range dirs {
		list, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, e := range list {
			name := e.Name()
			if strings.HasPrefix(name, ".") {
				continue
			}
			if slices.Contains(endings, filepath.Ext(name)) && !isFolder(dir, e) {
				name = strings.TrimSuffix(name, filepath.Ext(name))
			} else if !hasDocument(filepath.Join(dir, name), kind) {
				continue
			}
			// The read says what is wrong with such a name.
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	if len(names) > mostEntries {
		errs = append(errs, fmt.Errorf("the folders hold more than %d of them; move some away", mostEntries))
		names = names[:mostEntries]
	}
	return names, errors.Join(errs...)
}

func isFolder(dir string, e fs.DirEntry) bool {
	info, err := os.Stat(filepath.Join(dir, e.Name()))
	return err == nil && info.IsDir()
}

func hasDocument(dir, kind string) bool {
	return slices.ContainsFunc(fileKinds(kind), func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// find looks for the document of a name. ok is false where there is none; two of them are
// a problem.
func find(dirs []string, kind, name string, r *report) (src source, ok bool) {
	if !config.AgentName(name) {
		// A name with dots and slashes would leave the folder.
		if !slices.ContainsFunc(dirs, func(dir string) bool { return isListed(dir, kind, name) }) {
			return source{}, false
		}
	}
	var found []source
	for _, dir := range dirs {
		found = append(found, sourcesIn(dir, kind, name)...)
	}
	switch len(found) {
	case 0:
		return source{}, false
	case 1:
	default:
		r.add(config.Problem{File: found[1].path, Message: fmt.Sprintf("%s %q is there already, as %s; remove one", kind, name, found[0].path)})
	}
	return found[0], true
}

// isListed reports whether a name is one that its folder lists.
func isListed(dir, kind, name string) bool {
	names, _ := namesIn([]string{dir}, kind)
	return slices.Contains(names, name)
}

// sourcesIn are the documents of a name in one folder, not read yet.
func sourcesIn(dir, kind, name string) []source {
	var found []source
	for _, ending := range endings {
		if path := filepath.Join(dir, name+ending); isFile(path) {
			found = append(found, source{path: path, name: name, dir: dir, body: isMarkdown(path), kind: kind})
		}
	}
	for _, file := range fileKinds(kind) {
		if path := filepath.Join(dir, name, file); isFile(path) {
			found = append(found, source{path: path, name: name, dir: filepath.Join(dir, name), body: isMarkdown(file), own: true, kind: kind})
		}
	}
	return found
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.IsDir()
}

// load reads the document's own file.
func (src *source) load() error {
	dir, name := filepath.Split(src.path)
	if dir == "" {
		dir = "."
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	src.data, err = readFile(f)
	return err
}

// readPlain reads a file below a root, and nothing outside of it.
func readPlain(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readFile(f)
}

// readFile reads a plain file: a pipe or a device could keep its reader waiting forever.
func readFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a plain file", f.Name())
	}
	data, err := io.ReadAll(io.LimitReader(f, mostFile+1))
	if err == nil && len(data) > mostFile {
		err = fmt.Errorf("%s is larger than %d KiB", f.Name(), mostFile>>10)
	}
	return data, err
}

// read reads a blueprint with all its capabilities; ok is false where there is none.
func (f Folders) read(name string, r *report) (b Blueprint, ok bool) {
	src, ok := find(f, "agent", name, r)
	if !ok {
		return Blueprint{}, false
	}
	if err := src.load(); err != nil {
		r.take(src.path, err)
		return Blueprint{Name: name, Source: src.path}, true
	}
	b = src.read(blueprintTable, r).Blueprint
	f.mix(&b, r)
	return b, true
}

// mix adds the capabilities of a blueprint.
func (f Folders) mix(b *Blueprint, r *report) {
	dirs := f.capabilities()
	mixIn(b, func(name string, r *report) (draft, bool) {
		src, ok := find(dirs, "capability", name, r)
		if !ok {
			return draft{}, false
		}
		if err := src.load(); err != nil {
			r.take(src.path, err)
			return draft{}, true
		}
		return src.read(capabilityTable, r), true
	}, func() []string { all, _ := namesIn(dirs, "capability"); return all }, r)
}

// File reads a blueprint from a file, wherever it is, with the capabilities of the folders
// and of the one beside it.
func (f Folders) File(path string) (Blueprint, error) {
	var r report
	name := filepath.Base(path)
	src := source{path: path, dir: filepath.Dir(absolute(path)), body: isMarkdown(name), kind: "agent"}
	if src.own = slices.Contains(fileKinds("agent"), name); src.own {
		src.name = filepath.Base(src.dir)
		f = append(slices.Clone(f), filepath.Dir(src.dir))
	} else {
		src.name = strings.TrimSuffix(name, filepath.Ext(name))
		f = append(slices.Clone(f), src.dir)
	}
	if err := src.load(); err != nil {
		return Blueprint{}, fmt.Errorf("read a blueprint: %w", err)
	}
	b := src.read(blueprintTable, &r).Blueprint
	f.mix(&b, &r)
	r.problems = sortProblems(r.problems)
	return b, r.err()
}

// CheckCapabilities reads all capabilities, also those that no agent has.
func (f Folders) CheckCapabilities() (n int, err error) {
	var r report
	dirs := f.capabilities()
	names, err := namesIn(dirs, "capability")
	r.take(capabilityFolder, err)
	for _, name := range names {
		src, ok := find(dirs, "capability", name, &r)
		if !ok {
			continue
		}
		if err := src.load(); err != nil {
			r.take(src.path, err)
			continue
		}
		src.read(capabilityTable, &r)
	}
	return len(names), r.err()
}
