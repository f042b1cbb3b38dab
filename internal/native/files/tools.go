package files

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A tool is one that every server of this process has.
type tool struct {
	*mcp.Tool
	changes bool // something in the tree
	run     func(*server, context.Context, *args) (*mcp.CallToolResult, error)
}

type tools struct {
	all     []*mcp.Tool
	reading []*mcp.Tool // those that change nothing
	byName  map[string]*tool
}

// catalog makes the list of tools once; all servers share it.
var catalog = sync.OnceValue(func() tools {
	reads := hints{}
	out := tools{byName: map[string]*tool{}}
	for _, d := range []struct {
		name, title, description string
		hints                    hints
		input, output            string
		run                      func(*server, context.Context, *args) (*mcp.CallToolResult, error)
	}{
		{"read_file", "Read File (Deprecated)", "Reads a file as text. Deprecated: use read_text_file.",
			reads, lineInput, textOutput, (*server).readText},
		{"read_text_file", "Read Text File",
			"Reads a file as UTF-8 text, whatever its extension: the whole file, its first lines with head, or its last lines with tail.",
			reads, lineInput, textOutput, (*server).readText},
		{"read_media_file", "Read Media File",
			"Reads a file as base64 with its MIME type: an image or a sound as such, any other file as an embedded resource.",
			reads, pathInput, mediaOutput, (*server).readMedia},
		{"read_multiple_files", "Read Multiple Files",
			"Reads several files as text in one call. Each one's text follows its path; a file that can't be read has its error there and does not stop the others.",
			reads, pathsInput, textOutput, (*server).readMultiple},
		{"write_file", "Write File",
			"Makes a file with the given text, or replaces all that is in it, without asking. The directory must exist.",
			hints{changes: true, idempotent: true, destructive: true}, writeInput, textOutput, (*server).writeFile},
		{"edit_file", "Edit File",
			"Replaces pieces of a text file, one edit after the other. Text that is not found exactly is looked for line by line without regard to white space at the ends of lines. Returns the changes as a diff; with dryRun nothing is written.",
			hints{changes: true, destructive: true}, editInput, textOutput, (*server).editFile},
		{"create_directory", "Create Directory",
			"Makes a directory, and those above it that are missing. One that exists already is fine.",
			hints{changes: true, idempotent: true}, pathInput, textOutput, (*server).createDirectory},
		{"list_directory", "List Directory",
			"Lists what is in a directory, one entry a line, marked [FILE] or [DIR].",
			reads, pathInput, textOutput, (*server).listDirectory},
		{"list_directory_with_sizes", "List Directory with Sizes",
			"Lists what is in a directory with the size of each file and their sum, by name or by size.",
			reads, sizesInput, textOutput, (*server).listSizes},
		{"directory_tree", "Directory Tree",
			"Shows all that is below a directory as JSON: name, type (file or directory) and, for a directory, children. excludePatterns are globs, or names to leave out wherever they are.",
			reads, treeInput, textOutput, (*server).directoryTree},
		{"move_file", "Move File",
			"Moves or renames a file or directory. Fails when there is something at the destination.",
			hints{changes: true, destructive: true}, moveInput, textOutput, (*server).moveFile},
		{"search_files", "Search Files",
			"Finds files and directories below a directory by a glob on their path from there: *.txt in it, **/*.txt at any depth. Returns full paths.",
			reads, searchInput, textOutput, (*server).search},
		{"get_file_info", "Get File Info",
			"Tells the size, times, type and permissions of a file or directory.",
			reads, pathInput, textOutput, (*server).fileInfo},
		{"list_allowed_directories", "List Allowed Directories",
			"Tells the directory that this server works in. All paths are in it; relative ones start there.",
			reads, noInput, textOutput, (*server).allowed},
	} {
		t := &tool{
			Tool: &mcp.Tool{
				Name:         d.name,
				Title:        d.title,
				Description:  d.description,
				Annotations:  d.hints.annotations(),
				InputSchema:  json.RawMessage(d.input),
				OutputSchema: json.RawMessage(d.output),
			},
			changes: d.hints.changes,
			run:     d.run,
		}
		out.byName[d.name] = t
		out.all = append(out.all, t.Tool)
		if !t.changes {
			out.reading = append(out.reading, t.Tool)
		}
	}
	return out
})

type hints struct{ changes, idempotent, destructive bool }

func (h hints) annotations() *mcp.ToolAnnotations {
	a := &mcp.ToolAnnotations{ReadOnlyHint: !h.changes, IdempotentHint: h.idempotent, OpenWorldHint: new(bool)}
	if h.changes {
		a.DestructiveHint = &h.destructive
	}
	return a
}

// The schemas, as they go over the wire.
const (
	object     = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":`
	pathSchema = `{"type":"string","description":"Absolute, or relative to the allowed directory"}`
	patterns   = `{"type":"array","items":{"type":"string"},"default":[],"description":"Globs of what to leave out"}`
	closed     = `"additionalProperties":false}`
	textOutput = object + `{"content":{"type":"string"}},"required":["content"],` + closed

	noInput   = object + `{}}`
	pathInput = object + `{"path":` + pathSchema + `},"required":["path"]}`
	lineInput = object + `{"path":` + pathSchema +
		`,"tail":{"type":"number","description":"Return the last N lines only"}` +
		`,"head":{"type":"number","description":"Return the first N lines only"}},"required":["path"]}`
	pathsInput = object + `{"paths":{"type":"array","minItems":1,"items":{"type":"string"},"description":"The files to read"}},"required":["paths"]}`
	writeInput = object + `{"path":` + pathSchema + `,"content":{"type":"string"}},"required":["path","content"]}`
	editInput  = object + `{"path":` + pathSchema +
		`,"edits":{"type":"array","items":{"type":"object","properties":{` +
		`"oldText":{"type":"string","description":"The text to replace"},"newText":{"type":"string","description":"What to put there"}},` +
		`"required":["oldText","newText"]}}` +
		`,"dryRun":{"type":"boolean","default":false,"description":"Show the diff and write nothing"}},"required":["path","edits"]}`
	sizesInput = object + `{"path":` + pathSchema +
		`,"sortBy":{"type":"string","enum":["name","size"],"default":"name","description":"What to sort by"}},"required":["path"]}`
	treeInput   = object + `{"path":` + pathSchema + `,"excludePatterns":` + patterns + `},"required":["path"]}`
	moveInput   = object + `{"source":` + pathSchema + `,"destination":` + pathSchema + `},"required":["source","destination"]}`
	searchInput = object + `{"path":` + pathSchema + `,"pattern":{"type":"string","description":"A glob"},"excludePatterns":` + patterns + `},"required":["path","pattern"]}`
	mediaOutput = object + `{"content":{"type":"array","items":{"anyOf":[` +
		`{"type":"object","properties":{"type":{"type":"string","enum":["image","audio"]},"data":{"type":"string"},"mimeType":{"type":"string"}},"required":["type","data","mimeType"],` + closed +
		`,{"type":"object","properties":{"type":{"type":"string","const":"resource"},"resource":{"type":"object",` +
		`"properties":{"uri":{"type":"string"},"mimeType":{"type":"string"},"blob":{"type":"string"}},"required":["uri","blob"],` + closed +
		`},"required":["type","resource"],` + closed + `]}}},"required":["content"],` + closed
)
