package docker

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/secret"
)

// showDocker has what is shown say everything once. What the flags of run_args said is
// in other keys, so of run_args only flags without a key are shown. A place for a
// template is shown where there is a template, or where it is not the default.
func showDocker(s *config.Server, c *Config, n *config.Node) {
	n.Remove("run_args")
	if flags := c.keylessFlags(); len(flags) > 0 {
		n.Set("run_args", config.ListNode(c.shownFlags(s, flags)...))
	}
	if c.Pids < 0 {
		n.Remove("pids")
	}
	if s.Template == "" && len(c.State) > 0 && c.TemplatePath == c.State[0] {
		n.Remove("template_path")
	}
}

// keylessFlags are the flags of docker run for what no key says.
func (c *Config) keylessFlags() []string {
	var flags []string
	for _, f := range []struct {
		name string
		on   bool
	}{{"--read-only", c.ReadOnly}, {"--privileged", c.Privileged}, {"--pids-limit=-1", c.Pids < 0}} {
		if f.on {
			flags = append(flags, f.name)
		}
	}
	for _, f := range []struct {
		name   string
		values []string
	}{
		{"--device", c.Devices}, {"--cap-drop", c.CapDrop}, {"--security-opt", c.SecurityOpt}, {"--ulimit", c.Ulimits}, {"--add-host", c.ExtraHosts}, {"--dns", c.DNS},
	} {
		for _, v := range f.values {
			flags = append(flags, f.name+"="+v)
		}
	}
	return flags
}

// shownFlags masks what may have come from a placeholder: where there is one, only a
// value is shown that stands in another flag as it is.
func (c *Config) shownFlags(s *config.Server, flags []string) []string {
	shown := config.ShownLine(flags, "", nil)
	hides, open := false, []string(nil)
	for i, arg := range c.RunArgs {
		if s.Hidden("docker.run_args." + strconv.Itoa(i)) {
			hides = true
		} else {
			open = append(open, arg)
		}
	}
	for i, f := range flags {
		name, value, given := strings.Cut(f, "=")
		if hides && given && !slices.ContainsFunc(open, func(arg string) bool { return strings.Contains(arg, value) }) {
			shown[i] = name + "=" + secret.Mask
		}
	}
	return shown
}
