// Package srt reads the settings of Anthropic's sandbox-runtime, srt-settings.json, as
// version 0.0.83 of @anthropic-ai/sandbox-runtime reads them on Linux:
//
//	network.allowedDomains     names, *.names below one, addresses; each may have :port, and is for all
//	                           ports without. Nothing else is reached.
//	network.deniedDomains      the same, and * or *:port; what is denied wins.
//	network.allowLocalBinding  read; see below.
//	network.allowUnixSockets   a list of paths; see below.
//	filesystem.denyRead        files and folders; all others may be read.
//	filesystem.allowRead       parts of what denyRead has. The longer path wins, and of equals the allowed.
//	filesystem.allowWrite      folders; nothing else is written.
//	filesystem.denyWrite       parts of those; what is denied wins, however long it is.
//
// A list that is missing is empty. Other keys are refused, those that srt has besides as well,
// since what they ask for would not hold. A path is absolute, begins with ~, or begins at the
// folder that the program was started in, not at that of the file. /** at its end says nothing.
// With * ? [ ] it is a pattern, in which ** and nothing else stands for / as well; {"path":
// P, "literal": true} is never one. A denied path is denied by every name that leads to it,
// and a denied pattern is denied as the path that it spells, too. An allowed path that is a
// link allows nothing of what it leads to.
//
// # Who holds it
//
// Landlock allows folders and can't deny within one. So a rule is held at one of three places:
//   - denyRead and allowRead where a file is opened for a caller: ask Denied before, and
//     DeniedFile of the file that was opened, since a link may have changed meanwhile. A hard
//     link to a denied file, or a copy, is another file.
//   - allowWrite by who is given the folders of WriteFolders, which is an error where a rule
//     denies something within one: that can't be held. A program of Tine that writes single
//     files asks MayWrite instead.
//   - the domains where a connection is made: MayReach by name, and AllowsAddress and
//     DeniesAddress by what the name resolved to.
//
// # Where it differs from srt
//
//   - srt leaves out a pattern that it can't expand, such as /**/*.pem, and one in allowWrite
//     and denyWrite, and says so in its debug log. Here denied patterns hold, also for files
//     that come later, and a pattern in allowWrite is an error.
//   - srt has names of files that are never written, such as .bashrc and .git/hooks. MayWrite
//     knows them; WriteFolders can't.
//   - srt lets a folder of allowWrite be read though denyRead covers it. Here denyRead holds.
//   - srt makes /tmp/claude, ~/.npm/_logs and ~/.claude/debug writable; here they are not.
//   - A kernel has a loopback of its own, as in srt on Linux, where allowLocalBinding changes
//     nothing, and reaches no socket of this machine. Warnings say so where a file asks for it.
package srt

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/config"
)

// Options say what paths begin at. The zero value asks the process.
type Options struct {
	Dir  string // where relative paths begin: the working directory
	Home string // what ~ is
}

// Settings are what a file says. They are not changed after they were read. The lists have
// whole paths, and names as they are compared; what is a pattern stays one.
type Settings struct {
	AllowedDomains    []string
	DeniedDomains     []string
	AllowLocalBinding bool
	AllowUnixSockets  []string
	DenyRead          []string
	AllowRead         []string
	AllowWrite        []string
	DenyWrite         []string

	// Warnings name what a file allows and nothing gives, with its place.
	Warnings []string

	file            string
	dir             string
	allowed, denied []domain
	denyRead        []rule
	allowRead       []rule
	allowWrite      []rule
	denyWrite       []rule
	home            string
}

// Load reads a file. An error of its content is a *config.Error, with places.
func Load(path string, o Options) (*Settings, error) {
	return read(path, o, func(doc config.Document) ([]string, error) { return doc.Load(path) })
}

// Parse reads settings from memory. The path names them in messages.
func Parse(data []byte, path string, o Options) (*Settings, error) {
	return read(path, o, func(doc config.Document) ([]string, error) { return doc.Parse(data, path) })
}

func read(path string, o Options, from func(config.Document) ([]string, error)) (*Settings, error) {
	s := &Settings{file: path, dir: o.Dir, home: o.Home}
	if s.dir == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("read %s: find the working directory, at which its paths begin: %w", path, err)
		}
		s.dir = dir
	}
	if !filepath.IsAbs(s.dir) {
		return nil, fmt.Errorf("read %s: %s, at which its paths begin, is not a whole path", path, s.dir)
	}
	s.dir = final(s.dir)
	if s.home == "" {
		s.home, _ = os.UserHomeDir() // a path with ~ is an error without
	}
	warnings, err := from(config.Document{Keys: topKeys, Read: s.top, Unknown: unheld})
	if err != nil {
		return nil, err
	}
	s.Warnings = warnings
	return s, nil
}
