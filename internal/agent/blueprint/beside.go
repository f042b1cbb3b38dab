package blueprint

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// prompt reads the system prompt from a file beside the document.
func (src source) prompt(d *draft, r *report) {
	name, at := d.promptFile, src.at(*d, "system_prompt_file")
	beside := src.kind + ".system-prompt.md"
	if src.kind == "capability" {
		beside = "capability.text.md"
	}
	switch {
	case name != "" && !d.SystemPrompt.Empty():
		r.add(at.problem("stands beside a system prompt; keep one"))
		return
	case name != "" && src.dir == "":
		r.add(at.problem("a document of the API reads no files; send the text as system_prompt"))
		return
	case name == "" && (!src.own || !d.SystemPrompt.Empty()):
		return
	}
	given := name != ""
	if !given {
		name = beside
	}
	data, err := readBeside(src.dir, name)
	if !given && errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		r.add(at.problem("%v; name a file in the folder of the blueprint", err))
		return
	}
	d.SystemPrompt = textIn(filepath.Join(src.dir, name), strings.TrimSpace(string(data)), 1, "", r)
}

// readBeside reads a plain file in a folder, and no other.
func readBeside(dir, name string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return readPlain(root, filepath.FromSlash(name))
}

// serversBeside reads agent.mcp.json, whose map is that of mcp_servers.
func (src source) serversBeside(d *draft, r *report) {
	if !src.own {
		return
	}
	for _, name := range []string{src.kind + ".mcp.json", "mcp.json"} {
		data, err := readBeside(src.dir, name)
		path := filepath.Join(src.dir, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			r.add(config.Problem{File: path, Message: err.Error()})
			continue
		}
		var found map[string]Server
		doc := config.Document{Keys: []string{"mcpServers"}, Read: func(o config.Object) {
			if n := o.Get("mcpServers"); n != nil {
				found = readServers(o, "mcpServers", n)
			}
		}}
		warnings, err := doc.Parse(data, path)
		r.warnings = append(r.warnings, warnings...)
		r.take(path, err)
		mixServers(&d.Blueprint, found, r)
	}
}

// mixServers adds servers to those of a blueprint. A name that stands twice is an error.
func mixServers(b *Blueprint, servers map[string]Server, r *report) {
	for _, name := range slices.Sorted(maps.Keys(servers)) {
		s := servers[name]
		if was, ok := b.Servers[name]; ok {
			r.add(s.at.problem("there is a server %q already, at %s:%d:%d; rename one", name, was.at.file, was.at.pos.Line, was.at.pos.Col))
			continue
		}
		if b.Servers == nil {
			b.Servers = map[string]Server{}
		}
		b.Servers[name] = s
	}
}
