package rlm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config/keyplaces"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
)

// loadTimeout bounds the reading of a file inside.
const loadTimeout = 10 * time.Minute

func (s *server) load(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	var in struct {
		Path string `json:"path"`
		Name string `json:"var_name"`
	}
	if err := arguments(req, &in); err != nil {
		return nil, err
	}
	if !isName(in.Name) {
		return nil, invalid("var_name must be a name of Python, not %q", in.Name)
	}
	file, err := s.open(in.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	porter, ok := s.env.Body.Instance.(driver.Porter)
	if !ok {
		return nil, errors.New("the driver of this kernel takes no files")
	}
	defer s.progress(ctx, req, nil)()
	inside, err := porter.Put(ctx, body.State, "load-"+time.Now().UTC().Format("150405.000000000"), file)
	if err != nil {
		return nil, fmt.Errorf("bring %s into the kernel: %w", in.Path, err)
	}
	done, err := s.do(ctx, loadTimeout, map[string]any{"op": "load", "path": inside, "name": in.Name}, nil)
	if err != nil {
		return nil, err
	}
	s.changed()
	var out struct {
		Error  *string `json:"error"`
		Type   string  `json:"type"`
		Length int     `json:"length"`
	}
	if err := json.Unmarshal(done, &out); err != nil {
		return nil, err
	}
	if out.Error != nil {
		return nil, &api.Error{Kind: api.KindTool, Message: cut(*out.Error, s.set.Output, "")}
	}
	unit := "chars"
	if out.Type == "bytes" {
		unit = "bytes"
	}
	return text(fmt.Sprintf("Loaded %s into %s (%d %s)", in.Path, in.Name, out.Length, unit)), nil
}

// example is a folder that may be read.
func (s *server) example() string {
	if len(s.set.AllowRead) > 0 {
		return s.set.AllowRead[0]
	}
	return "/folder"
}

// isName reports whether a text is an identifier, as far as that is not for the kernel
// to say.
func isName(s string) bool {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return s != ""
}

// open opens a file of the host that load may read. A link does not lead out of what is
// allowed.
func (s *server) open(path string) (*os.File, error) {
	if !filepath.IsAbs(path) {
		return nil, invalid("path must be absolute, such as %s, not %q", filepath.Join(s.example(), filepath.Base(path)), path)
	}
	path = filepath.Clean(path)
	file, err := s.openAllowed(path)
	if !escapes(err) {
		return file, err
	}
	// A link may lead to another folder that is allowed.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if file, err = s.openAllowed(real); err == nil {
		return file, nil
	}
	const leads = "a link leads out of the folder that may be read"
	var e *api.Error
	if !errors.As(err, &e) { // it was changed just now
		return nil, &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("%s: %s", path, leads)}
	}
	return nil, &api.Error{Kind: e.Kind, Message: fmt.Sprintf("%s: %s: %s", path, leads, e.Message)}
}

func (s *server) openAllowed(path string) (*os.File, error) {
	named := slices.Contains(s.set.AllowRead, path)
	if root, rel, ok := below(s.set.AllowRead, path); ok {
		if s.env.Readable == nil {
			return s.openWithin(root, rel, path, named)
		}
		if now, rel, ok := below(s.env.Readable(s.env.Server), path); ok {
			if len(root) > len(now) {
				now, rel, _ = below([]string{root}, path) // the narrower of both
			}
			return s.openWithin(now, rel, path, named)
		}
	}
	if err := s.noKeys(filepath.ToSlash(path), false); err != nil {
		return nil, err
	}
	return nil, &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("%s is not in a folder that may be read; %s", path, s.add("allow_read", path))}
}

// below finds the root that a path is in, and its way from there.
func below(roots []string, path string) (root, rel string, ok bool) {
	for _, root := range roots {
		rel, err := filepath.Rel(root, path)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return root, rel, true
		}
	}
	return "", "", false
}

// errEscapes is the error of a path of which a link leads out of its folder, as package os
// words it.
var errEscapes = errors.New("path escapes from parent")

func escapes(err error) bool { return errors.Is(err, errEscapes) }

func unreadable(path string, err error) error {
	if err = cause(err); err.Error() == errEscapes.Error() {
		return fmt.Errorf("%s: %w", path, errEscapes)
	}
	return &api.Error{Kind: api.KindTool, Message: fmt.Sprintf("%s can't be read: %v", path, err)}
}

// notOne is the error of what is no file.
func notOne(path string, info fs.FileInfo) error {
	if info.IsDir() {
		return invalid("%s is a folder, and one file is loaded at a time", path)
	}
	return invalid("%s is no regular file", path)
}

func (s *server) openWithin(root, rel, path string, named bool) (*os.File, error) {
	dir := root
	if rel == "." { // the file itself is allowed
		if info, err := os.Stat(root); err == nil && info.IsDir() {
			return nil, notOne(path, info)
		}
		dir, rel = filepath.Dir(root), filepath.Base(root)
	}
	within, err := os.OpenRoot(dir)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer within.Close()
	// A fifo or a device would make the open wait.
	info, err := within.Stat(rel)
	if err == nil && !info.Mode().IsRegular() {
		return nil, notOne(path, info)
	}
	var file *os.File
	if err == nil {
		file, err = within.Open(rel)
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		err = s.noKeys(filepath.ToSlash(real), named)
	}
	if err == nil && s.env.Denied != nil && s.env.Denied(file) {
		err = &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("%s is denied by filesystem.denyRead of the settings that tine rlm was started with", path)}
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// noKeys refuses a file that may have keys. Those of a project can be allowed by their
// own names.
func (s *server) noKeys(file string, named bool) error {
	if s.private(file) {
		return &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("%s belongs to the gateway or the system, and is not read", file)}
	}
	place, keys := keyplaces.InSystem(file)
	if home, err := os.UserHomeDir(); err == nil && !keys {
		if real, err := filepath.EvalSymlinks(home); err == nil {
			home = real
		}
		if rel, below := strings.CutPrefix(file, filepath.ToSlash(home)+"/"); below {
			place, keys = keyplaces.InHome(rel)
		}
	}
	if !keys && !named {
		place, keys = keyplaces.InProject(file)
	}
	if !keys {
		return nil
	}
	return &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("%s may hold keys or passwords (%s) and is not read", file, place)}
}

// private reports whether a file is one that no kernel may see: of the gateway, such as
// its config, or of the system's, which are no files.
func (s *server) private(file string) bool {
	places := []string{"/proc", "/sys", "/dev"}
	if s.env.Private != nil {
		places = append(places, s.env.Private()...)
	}
	for _, place := range places {
		if real, err := filepath.EvalSymlinks(place); err == nil {
			place = real
		}
		if place = filepath.ToSlash(place); file == place || strings.HasPrefix(file, strings.TrimSuffix(place, "/")+"/") {
			return true
		}
	}
	return false
}

// cause is an error without the path, which is named already.
func cause(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return err
}
