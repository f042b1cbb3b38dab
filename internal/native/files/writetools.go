package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func (s *server) writeFile(_ context.Context, a *args) (*mcp.CallToolResult, error) {
	asked, body := a.text("path"), a.text("content")
	if a.err != nil {
		return nil, a.err
	}
	p, err := s.find(asked)
	if err != nil {
		return nil, err
	}
	if err := s.write(p, body); err != nil {
		return nil, err
	}
	return text("Successfully wrote to " + asked), nil
}

// write makes or replaces a file.
func (s *server) write(p place, body string) error {
	switch {
	case p.found && p.info.Mode.IsDir():
		return s.fail(syscall.EISDIR, "open", p.name)
	case p.found && !p.info.Mode.IsRegular():
		return fmt.Errorf("%s is not a regular file; only those can be replaced", s.shown(p.name))
	}
	put := s.tree.Write
	if !p.found {
		put = s.tree.Create
	}
	err := put(p.name, strings.NewReader(body), int64(len(body)))
	if errors.Is(err, fs.ErrExist) {
		// Another program made it meanwhile; a call that writes a whole file replaces it.
		err = s.tree.Write(p.name, strings.NewReader(body), int64(len(body)))
	}
	if err != nil {
		return s.fail(err, "open", p.name)
	}
	return nil
}

func (s *server) createDirectory(_ context.Context, a *args) (*mcp.CallToolResult, error) {
	asked := a.text("path")
	if a.err != nil {
		return nil, a.err
	}
	p, err := s.find(asked)
	if err != nil {
		return nil, err
	}
	if p.found && !p.info.Mode.IsDir() {
		return nil, s.fail(fs.ErrExist, "mkdir", p.name)
	}
	if err := s.tree.MkdirAll(p.name); err != nil {
		return nil, s.fail(err, "mkdir", p.name)
	}
	return text("Successfully created directory " + asked), nil
}

func (s *server) moveFile(_ context.Context, a *args) (*mcp.CallToolResult, error) {
	source, destination := a.text("source"), a.text("destination")
	if a.err != nil {
		return nil, a.err
	}
	from, err := s.find(source)
	if err != nil {
		return nil, err
	}
	to, err := s.find(destination)
	if err != nil {
		return nil, err
	}
	if !to.found {
		err = s.tree.Rename(from.name, to.name)
	}
	switch {
	case to.found, errors.Is(err, fs.ErrExist):
		return nil, toolErrorf("Destination already exists: %s", s.shown(to.name))
	case err != nil:
		return nil, s.fail(err, "rename", from.name, to.name)
	}
	return text(fmt.Sprintf("Successfully moved %s to %s", source, destination)), nil
}
