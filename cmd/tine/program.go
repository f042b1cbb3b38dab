package main

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// wheelProgram is what this program is called where a Python wheel has installed it: the
// command tine is another package's there.
const wheelProgram = "tineworld"

// programName is the name of this program in the commands that it advises.
func programName(path string) string {
	if name := strings.TrimSuffix(filepath.Base(path), ".exe"); name == wheelProgram {
		return name
	}
	return "tine"
}

// ours finds commands of this program in a text, by the subcommand behind its name.
var ours = regexp.MustCompile("(^|[\\s\"`|])tine ([a-z])")

// named is a text with commands as they are called here.
func (c *cli) named(text string) string {
	if c.name != wheelProgram {
		return text
	}
	return ours.ReplaceAllString(text, "${1}"+c.name+" ${2}")
}

// rename has the help of a command, and of those below it, say how it is called here.
func (c *cli) rename(cmd *cobra.Command) {
	if c.name != wheelProgram {
		return
	}
	if !cmd.HasParent() {
		cmd.Use = c.name
	}
	cmd.Long, cmd.Example = c.named(cmd.Long), c.named(cmd.Example)
	for _, sub := range cmd.Commands() {
		c.rename(sub)
	}
}
