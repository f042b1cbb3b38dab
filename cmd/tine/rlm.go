package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
)

func newRLMCmd(c *cli) *cobra.Command {
	var o rlmFlags
	cmd := &cobra.Command{
		Use:   "rlm",
		Short: "Run a Python kernel for a language model, on standard input and output",
		Long: `Runs the built-in server rlm by itself, for one client that speaks stdio: tools
with which a language model runs Python, loads files into variables without
reading them, and has sub-agents work on them.

The kernel runs in a sandbox without network, and starts with the first call. It
belongs to the project folder, by default the current one: variables are there
again when the client comes back. Of two clients in one folder, the second has a
kernel of its own, which is not kept. --session gives a project several kernels.

rlm_load reads files of the project folder, and of the folders that --allow-read
names. Sub-agents and llm_query need a language model: set ANTHROPIC_API_KEY, or
see --model. The key stays outside of the kernel.`,
		Example: `  claude mcp add rlm -- tine rlm
  tine rlm --package numpy --package pandas
  tine rlm --python .venv/bin/python --allow-read ~/data
  tine rlm --model claude-code
  tine rlm --model llama3 --base-url http://127.0.0.1:11434/v1
  tine rlm --docker --image my-python`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.flags.json = false // standard output is the client's
			return c.rlm(cmd.Context(), o)
		},
	}
	o.add(cmd)
	return cmd
}

// rlmFlags say what kernel a client gets.
type rlmFlags struct {
	Project    string   `json:"project,omitempty"`
	Session    string   `json:"session,omitempty"`
	AllowRead  []string `json:"allow_read,omitempty"`
	Packages   []string `json:"packages,omitempty"`
	Python     string   `json:"python,omitempty"`
	Image      string   `json:"image,omitempty"`
	Memory     string   `json:"memory,omitempty"`
	Names      string   `json:"names,omitempty"`
	Model      string   `json:"model,omitempty"`
	SubModel   string   `json:"sub_model,omitempty"`
	BaseURL    string   `json:"base_url,omitempty"`
	KeyEnv     string   `json:"key_env,omitempty"`
	Cost       float64  `json:"cost,omitempty"`
	Docker     bool     `json:"docker,omitempty"`
	NoDocker   bool     `json:"no_docker,omitempty"`
	Plain      bool     `json:"plain,omitempty"`
	Unconfined bool     `json:"unconfined,omitempty"`
}

// rlmSettings are the flags that settings are set by, for messages.
var rlmSettings = map[string]string{"allow_read": "--allow-read", "packages": "--package", "names": "--names", "python": "--python"}

func (o *rlmFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Project, "project", "", "project folder, whose kernel it is and whose files may be loaded (default the current folder)")
	f.StringVar(&o.Session, "session", "", "a kernel of this name, besides the project's usual one")
	f.StringArrayVar(&o.AllowRead, "allow-read", nil, "another file or folder that rlm_load may read; can be repeated")
	f.StringVar(&o.Python, "python", "", "Python interpreter, such as .venv/bin/python, whose packages can be imported (default python3)")
	f.StringArrayVar(&o.Packages, "package", nil, "package from PyPI that can be imported, such as numpy or pandas==2.3.0; can be repeated")
	f.StringVar(&o.Memory, "memory", "", "memory of the kernel, such as 8GiB (default 2GiB)")
	f.StringVar(&o.Names, "names", "", "how tools are listed: underscores, as rlm_exec, or dots, as rlm.exec (default underscores)")
	f.BoolVar(&o.Docker, "docker", false, "run the kernel in a container")
	f.StringVar(&o.Image, "image", "", "image of the container, which has python3 (implies --docker)")
	f.BoolVar(&o.NoDocker, "no-docker", false, "run the kernel in a sandbox, or fail: never in a container")
	f.BoolVar(&o.Plain, "no-isolation", false, "run the kernel as an ordinary process, which can read and change all that you can")
	f.BoolVar(&o.Unconfined, "no-confinement", false, "do not confine this process itself, which reads what the kernel says")
	f.StringVar(&o.Model, "model", "", "language model of sub-agents: anthropic/NAME, openai/NAME, claude-code, or NAME with --base-url")
	f.StringVar(&o.SubModel, "sub-model", "", "language model of llm_query (default that of --model)")
	f.StringVar(&o.BaseURL, "base-url", "", "endpoint of the language model, in the format of OpenAI or Anthropic")
	f.StringVar(&o.KeyEnv, "key-env", "", "environment variable with the key of the language model (default ANTHROPIC_API_KEY or OPENAI_API_KEY)")
	f.Float64Var(&o.Cost, "max-cost", 0, "US dollars that language models may cost while this runs (default no bound)")
	cmd.MarkFlagsMutuallyExclusive("docker", "no-docker", "no-isolation")
	cmd.MarkFlagsMutuallyExclusive("image", "no-docker", "no-isolation")
}

// resolve makes the paths absolute, with links of the project folder resolved: another
// process may read them in another folder.
func (o *rlmFlags) resolve() error {
	dir, err := filepath.Abs(cmp.Or(o.Project, "."))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return fmt.Errorf("find the project folder: %w; name it with --project", err)
	case !info.IsDir():
		return usagef("--project %s is no folder", dir)
	}
	o.Project = dir
	for i, path := range o.AllowRead {
		if o.AllowRead[i], err = filepath.Abs(path); err != nil {
			return err
		}
		if _, err := os.Stat(path); err != nil {
			return usagef("--allow-read: %w", err)
		}
	}
	if strings.ContainsAny(o.Python, `/\`) {
		o.Python, err = filepath.Abs(o.Python)
	}
	return err
}

// way tells kernels apart by how they run: none can go on from what one of another way
// left. It is empty in a sandbox.
func (o *rlmFlags) way() string {
	switch {
	case o.Plain:
		return "\x00process"
	case o.inContainer():
		return "\x00container"
	}
	return ""
}

// inContainer reports whether the kernel is one of Docker.
func (o *rlmFlags) inContainer() bool { return o.Docker || o.Image != "" }

// entry is the config of the kernel.
func (o *rlmFlags) entry() map[string]any {
	settings := map[string]any{"allow_read": append([]string{o.Project}, o.AllowRead...)}
	for key, value := range map[string]string{
		"names": o.Names, "python": o.Python, "model": o.Model, "sub_model": o.SubModel, "base_url": o.BaseURL, "key_env": o.KeyEnv,
	} {
		if value != "" {
			settings[key] = value
		}
	}
	if len(o.Packages) > 0 {
		settings["packages"] = o.Packages
	}
	if o.Cost > 0 {
		settings["budget"] = map[string]any{"cost": o.Cost}
	}
	entry := map[string]any{"builtin": "rlm", "settings": settings}
	limits := map[string]any{}
	if o.Memory != "" {
		limits["memory"] = o.Memory
	}
	switch {
	case o.Plain:
		entry["driver"] = "process"
	case o.inContainer():
		if o.Image != "" {
			limits["image"] = o.Image
		}
		entry["docker"] = limits
	case o.NoDocker || len(limits) > 0:
		entry["sandbox"] = limits
	}
	return entry
}

// rlmConfig is that of a gateway with the kernel alone.
func (c *cli) rlmConfig(o *rlmFlags) (*config.Config, error) {
	text, err := json.Marshal(map[string]any{
		"servers":  map[string]any{"rlm": o.entry()},
		"sessions": map[string]any{"implicit": "shared"},
		"log":      map[string]any{"level": "warn"},
	})
	if err != nil {
		return nil, err
	}
	opts := c.serveOptions()
	opts.Path = filepath.Join(o.Project, "tine rlm") // where relative paths start
	cfg, err := config.Parse([]byte(strings.ReplaceAll(string(text), "${", "$${")), opts)
	if err != nil {
		return nil, usagef("%s", flagErrors(err))
	}
	cfg.Path = ""
	return cfg, nil
}

// flagErrors are errors of the config in words of the command line.
func flagErrors(err error) string {
	text := err.Error()
	for key, flag := range rlmSettings {
		text = strings.ReplaceAll(text, "servers.rlm.settings."+key, flag)
	}
	return text
}

func (c *cli) rlm(ctx context.Context, o rlmFlags) error {
	if err := o.resolve(); err != nil {
		return err
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	rooms := c.rlmRooms(state)
	m, err := rooms.take(ctx, o)
	if err != nil {
		return err
	}
	defer m.close()
	if m.note != "" {
		fmt.Fprintf(c.stderr, "tine: %s\n", m.note)
	}
	err = m.p.gateway.ServeStdio(ctx, c.stdin, c.stdout, "", false)
	m.ending()
	return err
}
