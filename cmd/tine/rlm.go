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
	"github.com/tine-mcp/tine/internal/telemetry"
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
	project, session              string
	allowRead, packages           []string
	python, image, memory, names  string
	model, subModel, base, keyEnv string
	cost                          float64
	docker, noDocker, plain       bool
}

// rlmSettings are the flags that settings are set by, for messages.
var rlmSettings = map[string]string{"allow_read": "--allow-read", "packages": "--package"}

func (o *rlmFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.project, "project", "", "project folder, whose kernel it is and whose files may be loaded (default the current folder)")
	f.StringVar(&o.session, "session", "", "a kernel of this name, besides the project's usual one")
	f.StringArrayVar(&o.allowRead, "allow-read", nil, "another file or folder that rlm_load may read; can be repeated")
	f.StringVar(&o.python, "python", "", "Python interpreter, such as .venv/bin/python, whose packages can be imported (default python3)")
	f.StringArrayVar(&o.packages, "package", nil, "package from PyPI that can be imported, such as numpy or pandas==2.3.0; can be repeated")
	f.StringVar(&o.memory, "memory", "", "memory of the kernel, such as 8GiB (default 2GiB)")
	f.StringVar(&o.names, "names", "", "how tools are listed: underscores, as rlm_exec, or dots, as rlm.exec (default underscores)")
	f.BoolVar(&o.docker, "docker", false, "run the kernel in a container")
	f.StringVar(&o.image, "image", "", "image of the container, which has python3 (implies --docker)")
	f.BoolVar(&o.noDocker, "no-docker", false, "run the kernel in a sandbox, or fail: never in a container")
	f.BoolVar(&o.plain, "no-isolation", false, "run the kernel as an ordinary process, which can read and change all that you can")
	f.StringVar(&o.model, "model", "", "language model of sub-agents: anthropic/NAME, openai/NAME, claude-code, or NAME with --base-url")
	f.StringVar(&o.subModel, "sub-model", "", "language model of llm_query (default that of --model)")
	f.StringVar(&o.base, "base-url", "", "endpoint of the language model, in the format of OpenAI or Anthropic")
	f.StringVar(&o.keyEnv, "key-env", "", "environment variable with the key of the language model (default ANTHROPIC_API_KEY or OPENAI_API_KEY)")
	f.Float64Var(&o.cost, "max-cost", 0, "US dollars that language models may cost while this runs (default no bound)")
	cmd.MarkFlagsMutuallyExclusive("docker", "no-docker", "no-isolation")
	cmd.MarkFlagsMutuallyExclusive("image", "no-docker", "no-isolation")
}

// entry is the config of the kernel.
func (o *rlmFlags) entry(project string) (map[string]any, error) {
	roots := []string{project}
	for _, path := range o.allowRead {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, err
		}
		roots = append(roots, abs)
	}
	settings := map[string]any{"allow_read": roots}
	for key, value := range map[string]string{"names": o.names, "model": o.model, "sub_model": o.subModel, "base_url": o.base, "key_env": o.keyEnv} {
		if value != "" {
			settings[key] = value
		}
	}
	if o.python != "" {
		settings["python"] = o.python
		if strings.ContainsAny(o.python, `/\`) {
			abs, err := filepath.Abs(o.python)
			if err != nil {
				return nil, err
			}
			settings["python"] = abs
		}
	}
	if len(o.packages) > 0 {
		settings["packages"] = o.packages
	}
	if o.cost > 0 {
		settings["budget"] = map[string]any{"cost": o.cost}
	}
	entry := map[string]any{"builtin": "rlm", "settings": settings}
	limits := map[string]any{}
	if o.memory != "" {
		limits["memory"] = o.memory
	}
	switch {
	case o.plain:
		entry["driver"] = "process"
	case o.docker || o.image != "":
		if o.image != "" {
			limits["image"] = o.image
		}
		entry["docker"] = limits
	case o.noDocker || len(limits) > 0:
		entry["sandbox"] = limits
	}
	return entry, nil
}

// config is that of a gateway with the kernel alone.
func (c *cli) rlmConfig(o rlmFlags, project string) (*config.Config, error) {
	entry, err := o.entry(project)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(map[string]any{
		"servers":  map[string]any{"rlm": entry},
		"sessions": map[string]any{"implicit": "shared"},
		"log":      map[string]any{"level": "warn"},
	})
	if err != nil {
		return nil, err
	}
	opts := c.serveOptions()
	opts.Path = filepath.Join(project, "tine rlm") // where relative paths start
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
	project, err := projectFolder(o.project)
	if err != nil {
		return err
	}
	cfg, err := c.rlmConfig(o, project)
	if err != nil {
		return err
	}
	state, err := c.stateDir()
	if err != nil {
		return err
	}
	redact := telemetry.NewRedactor()
	redact.Set(cfg.Secrets())
	log := telemetry.NewLogger(c.stderr, cfg.Log.Level, cfg.Log.Format, redact)
	warnAll(log, cfg)
	open := func(dir, note string) (*service, error) {
		return newService(ctx, serviceOptions{
			Config: cfg, State: dir, StateFlag: stateFlag(dir), Version: c.version, Redact: redact, Log: log,
			RLM: rlmOptions{Flags: rlmSettings, Note: note},
		})
	}
	rooms := rlmRooms{root: filepath.Join(state, "rlm"), now: c.now, log: log}
	room, err := rooms.take(ctx, project, o.session, open)
	if err != nil {
		return err
	}
	defer room.close()
	if room.note != "" {
		fmt.Fprintf(c.stderr, "tine: %s\n", room.note)
	}
	err = room.p.gateway.ServeStdio(ctx, c.stdin, c.stdout, "", false)
	room.ending()
	return err
}

// projectFolder is the folder that a kernel belongs to, with links resolved.
func projectFolder(given string) (string, error) {
	dir, err := filepath.Abs(cmp.Or(given, "."))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the project folder: %w; name it with --project", err)
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no folder", dir)
	}
	if err != nil {
		return "", fmt.Errorf("find the project folder: %w; name it with --project", err)
	}
	return dir, nil
}
