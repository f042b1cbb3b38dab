package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/wire"
)

// buildVersion is the version and origin of this program.
type buildVersion struct {
	Version   string   `json:"version"`
	Commit    string   `json:"commit,omitempty"`
	Modified  bool     `json:"modified,omitempty"` // built from a changed tree
	Go        string   `json:"go"`
	OS        string   `json:"os"`
	Arch      string   `json:"arch"`
	Protocols []string `json:"protocols"`
}

func newVersionCmd(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: "  tine version\n  tine version --json",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return c.printVersion() },
	}
}

func (c *cli) printVersion() error {
	v := c.buildVersion()
	return c.answer(v, v.String()+"\nMCP "+strings.Join(v.Protocols, ", "))
}

func (c *cli) buildVersion() buildVersion {
	v := buildVersion{
		Version:   c.version,
		Go:        runtime.Version(),
		OS:        runtime.GOOS,
		Arch:      runtime.GOARCH,
		Protocols: wire.Versions[:],
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	// go install module@version sets no linker flag but knows the version.
	if v.Version == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = strings.TrimPrefix(info.Main.Version, "v")
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v buildVersion) String() string {
	parts := []string{}
	if v.Commit != "" {
		commit := "commit " + v.Commit[:min(12, len(v.Commit))]
		if v.Modified {
			commit += " with changes"
		}
		parts = append(parts, commit)
	}
	parts = append(parts, v.Go, v.OS+"/"+v.Arch)
	return fmt.Sprintf("tine %s (%s)", v.Version, strings.Join(parts, ", "))
}
