package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// maxConfig bounds a file that is imported.
const maxConfig = 16 << 20

func newConfigCmd(c *cli) *cobra.Command {
	var flag string
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check, show or import a config",
		Long: `Checks, shows and converts config files. No gateway needs to run.

Without FILE the commands read the config that "tine serve" would use: --config,
TINE_CONFIG, tine.yaml or tine.yml in the current folder, tine/tine.yaml in the
user's config folder, else the built-in defaults.`,
		Example: `  tine config check
  tine config show .mcp.json
  tine config import ~/.claude.json -o tine.yaml`,
		Args: cobra.ArbitraryArgs,
		RunE: group,
	}
	cmd.PersistentFlags().StringVar(&flag, "config", "", "config file (env TINE_CONFIG)")

	find := func(args []string) (string, error) {
		if len(args) == 0 {
			return c.findConfig(flag)
		}
		if flag != "" {
			return "", usagef("FILE and --config exclude each other; give one")
		}
		return args[0], nil
	}
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate a config",
		Long:  "Reads a config as \"tine serve\" does, and reports errors with file, line and\ncolumn. Starts no servers.",
		Example: `  tine config check
  tine config check .mcp.json
  tine config check --json`,
		Args: upToOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := find(args)
			if err != nil {
				return err
			}
			return c.checkConfig(path)
		},
	}
	show := &cobra.Command{
		Use:     "show [FILE]",
		Short:   "Print the effective config",
		Long:    "Prints a config with every default filled in, every placeholder resolved and secrets masked.",
		Example: "  tine config show\n  tine config show .mcp.json",
		Args:    upToOneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := find(args)
			if err != nil {
				return err
			}
			return c.showConfig(path)
		},
	}
	schema := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of tine.yaml",
		Long: `Prints the JSON Schema (draft 2020-12) of tine.yaml, with a description of every
key. YAML editors use it for completion and validation.`,
		Example: `  tine config schema > tine.schema.json
  sed -i '1i # yaml-language-server: $schema=tine.schema.json' tine.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := c.stdout.Write(config.JSONSchema())
			return err
		},
	}
	cmd.AddCommand(check, show, newImportCmd(c), schema)
	return cmd
}

func newImportCmd(c *cli) *cobra.Command {
	var (
		out   string
		force bool
	)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Convert another program's config to tine.yaml",
		Long: `Reads the config of another program (mcpServers JSON of Claude, Cursor and others,
VS Code's servers, RewardKit YAML; - reads standard input) and prints an equivalent
tine.yaml. Settings that have no equivalent are listed on standard error. "tine
serve" can also use these files directly.`,
		Example: `  tine config import .mcp.json -o tine.yaml
  tine config import mcp_agent_config.yaml`,
		Args: oneArg("the file to import"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.importConfig(args[0], out, force)
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "", "write to this file, with access for you only, instead of standard output")
	cmd.Flags().BoolVar(&force, "force", false, "overwrite an existing file")
	return cmd
}

// configReport is config check for programs.
type configReport struct {
	File     string          `json:"file,omitempty"` // empty for the built-in defaults
	OK       bool            `json:"ok"`
	Servers  int             `json:"servers"`
	Disabled []string        `json:"disabled,omitempty"` // of the servers, those that are off
	Warnings []string        `json:"warnings,omitempty"`
	Problems []configProblem `json:"problems,omitempty"`
}

type configProblem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

func (c *cli) checkConfig(path string) error {
	conf, err := config.Load(path, c.configOptions())
	var warnings []string
	if err == nil {
		warnings = slices.Concat(conf.Warnings, conf.AgentWarnings(), sandbox.Warnings(enabled(conf), conf.SandboxBinary))
	}
	if c.flags.json {
		r := configReport{File: path, OK: err == nil, Problems: problems(err)}
		if err == nil {
			r.Servers, r.Disabled, r.Warnings = len(conf.Servers), disabled(conf), warnings
		}
		if perr := c.printJSON(r); perr != nil {
			return perr
		}
		if err != nil {
			return exitStatus(exitFailed)
		}
		return nil
	}
	if err != nil {
		return err
	}
	c.printWarnings(warnings)
	what := path
	if what == "" {
		what = "built-in defaults"
	}
	fmt.Fprintf(c.stdout, "ok: %s (%s)\n", countServers(conf), what)
	return nil
}

func isOff(s config.Server) bool { return !s.Enabled || s.Disabled != "" }

// enabled are the servers of a config that are not off; none without a config.
func enabled(conf *config.Config) []config.Server {
	if conf == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(conf.Servers), isOff)
}

// disabled names the servers of a config that are off.
func disabled(conf *config.Config) []string {
	var off []string
	for _, s := range conf.Servers {
		if isOff(s) {
			off = append(off, s.ID)
		}
	}
	return off
}

// countServers counts the servers of a config, and those that are off by name.
func countServers(conf *config.Config) string {
	text := count(len(conf.Servers), "server")
	off := disabled(conf)
	if len(off) == 0 {
		return text
	}
	text += fmt.Sprintf(", %d of them disabled", len(off))
	if len(off) > mostNamed {
		return text
	}
	return text + ": " + strings.Join(off, ", ")
}

func (c *cli) showConfig(path string) error {
	conf, err := config.Load(path, c.configOptions())
	if err != nil {
		return err
	}
	c.printWarnings(conf.Warnings)
	text := config.Marshal(conf)
	if c.flags.json {
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return fmt.Errorf("turn the config into JSON: %w", err)
		}
		text = append([]byte(indent(text, "")), '\n')
	}
	c.stdout.Write(text)
	return nil
}

func (c *cli) importConfig(path, out string, force bool) error {
	name := path
	var (
		data []byte
		err  error
	)
	if path == "-" {
		name = "standard input"
		data, err = readAll(c.stdin, name, maxConfig)
	} else {
		data, err = readFile(path, maxConfig)
	}
	if err != nil {
		return fmt.Errorf("read what to import: %w", err)
	}
	text, warnings, err := config.Import(data, name)
	if err != nil {
		return err
	}
	c.printWarnings(warnings)
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	if ids := config.Moved(text, path, cmp.Or(out, "tine.yaml")); path != "-" && len(ids) > 0 {
		c.printWarnings([]string{fmt.Sprintf("paths of these servers start at the folder of %s: %s; write the result there, or mend them", path, strings.Join(ids, ", "))})
	}
	if out == "" {
		c.stdout.Write(text)
		return nil
	}
	if _, err := os.Stat(out); err == nil && !force {
		return fmt.Errorf("%s exists; choose another name, or replace it with --force", out)
	}
	// Foreign configs hold keys in plain text more often than not.
	if err := writeAtomic(out, text); err != nil {
		return fmt.Errorf("write %s: %w", out, err)
	}
	c.say("wrote %s; check it with: tine config check %s", out, out)
	return nil
}

// printWarnings prints things worth telling that stop nothing.
func (c *cli) printWarnings(warnings []string) {
	for _, w := range warnings {
		c.say("warning: %s", w)
	}
}

func problems(err error) []configProblem {
	var ce *config.Error
	if err == nil {
		return nil
	}
	if !errors.As(err, &ce) {
		return []configProblem{{Message: err.Error()}}
	}
	var ps []configProblem
	for _, p := range ce.Problems {
		ps = append(ps, configProblem(p))
	}
	if ce.More > 0 {
		ps = append(ps, configProblem{Message: fmt.Sprintf("and %d more", ce.More)})
	}
	return ps
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
