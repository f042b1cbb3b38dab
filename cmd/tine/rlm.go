package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/config/srt"
	front "github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/model/spec"
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
names. Paths in flags begin at the project folder.

Sub-agents and llm_query need a language model: set ANTHROPIC_API_KEY, or see
--model. The key stays outside of the kernel.`,
		Example: `  tine rlm install claude-code
  claude mcp add rlm -- tine rlm
  tine rlm --package numpy --package pandas
  tine rlm --python .venv/bin/python --allow-read ~/data
  tine rlm --model claude-code
  tine rlm --model llama3 --base-url http://127.0.0.1:11434/v1
  tine rlm --docker --image my-python`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.flags.json = false // standard output is the client's
			if err := o.checkZero(cmd); err != nil {
				return err
			}
			return c.rlm(cmd.Context(), o)
		},
	}
	o.add(cmd)
	cmd.AddCommand(newRLMInstallCmd(c, &o), newRLMUninstallCmd(c))
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
	Prices     []string `json:"prices,omitempty"`
	Cost       float64  `json:"cost,omitempty"`
	Docker     bool     `json:"docker,omitempty"`
	NoDocker   bool     `json:"no_docker,omitempty"`
	Plain      bool     `json:"plain,omitempty"`
	Unconfined bool     `json:"unconfined,omitempty"`
	SRT        string   `json:"srt,omitempty"`
}

// rlmSettings are the flags that settings are set by, for messages.
var rlmSettings = map[string]string{"allow_read": "--allow-read", "packages": "--package", "names": "--names", "python": "--python", "memory": "--memory",
	"model": "--model", "sub_model": "--sub-model", "base_url": "--base-url", "key_env": "--key-env", "prices": "--price"}

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
	f.StringVar(&o.SRT, "srt", "", "settings file of sandbox-runtime: what rlm_load may not read, and the hosts of language models")
	f.BoolVar(&o.Unconfined, "no-confinement", false, "do not confine this process itself, which reads what the kernel says")
	f.StringVar(&o.Model, "model", "", "language model of sub-agents: anthropic/NAME, openai/NAME, claude-code, or NAME with --base-url")
	f.StringVar(&o.SubModel, "sub-model", "", "language model of llm_query (default that of --model)")
	f.StringVar(&o.BaseURL, "base-url", "", "endpoint of the language model, in the format of OpenAI or Anthropic")
	f.StringVar(&o.KeyEnv, "key-env", "", "environment variable with the key of the language model (default ANTHROPIC_API_KEY or OPENAI_API_KEY, and none with --base-url)")
	f.StringArrayVar(&o.Prices, "price", nil, "price of a language model that Tine does not know or knows wrongly, in US dollars for a million tokens, as NAME=INPUT,OUTPUT; can be repeated")
	f.Float64Var(&o.Cost, "max-cost", 0, "US dollars that language models may cost while this runs (default no bound)")
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
		o.AllowRead[i] = o.within(path)
	}
	if strings.ContainsAny(o.Python, `/\`) {
		o.Python = o.within(o.Python)
	}
	if o.SRT != "" {
		o.SRT = o.within(o.SRT)
	}
	return o.check()
}

// within is a path that a flag names: it begins at the project folder.
func (o *rlmFlags) within(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(o.Project, path)
}

// checkZero refuses a bound of zero, which is no bound where the flag is not given.
func (o *rlmFlags) checkZero(cmd *cobra.Command) error {
	if cmd.Flags().Changed("max-cost") && o.Cost == 0 {
		return usagef("--max-cost must be more than 0; leave it out for no bound")
	}
	return nil
}

// check refuses what would fail later, and less plainly.
func (o *rlmFlags) check() error {
	ways := 0
	for _, way := range []bool{o.inContainer(), o.NoDocker, o.Plain} {
		if way {
			ways++
		}
	}
	if ways > 1 {
		return usagef("--docker or --image, --no-docker and --no-isolation exclude each other; give one")
	}
	if o.Plain && o.Memory != "" {
		return usagef("--memory is of a sandbox or a container, and --no-isolation bounds nothing; leave one of them out")
	}
	for _, path := range o.AllowRead {
		if _, err := os.Stat(path); err != nil {
			return usagef("--allow-read: %w", err)
		}
	}
	if !(o.Cost >= 0) || math.IsInf(o.Cost, 0) {
		return usagef("--max-cost must be a number of dollars, and is %v", o.Cost)
	}
	if o.Python != "" && !o.inContainer() {
		if err := isPython(o.Python); err != nil {
			return usagef("--python: %w", err)
		}
	}
	if _, err := o.prices(); err != nil {
		return err
	}
	for flag, name := range map[string]string{"--model": o.Model, "--sub-model": o.SubModel} {
		if name == "" {
			continue
		}
		if _, err := spec.At(name, o.BaseURL); err != nil {
			return usagef("%s: %w", flag, err)
		}
	}
	return nil
}

// isPython says why a program is no Python that a kernel can run with. Otherwise a kernel
// would be given up for one that does not start.
func isPython(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-I", "-S", "-c", "import sys; print(sys.version_info >= (3, 9), sys.version)")
	cmd.Env, cmd.WaitDelay = []string{"PATH=" + os.Getenv("PATH")}, time.Second
	out, err := cmd.Output()
	switch says := string(out); {
	case strings.HasPrefix(says, "True"):
		return nil
	case strings.HasPrefix(says, "False "):
		return fmt.Errorf("%s is Python %s; 3.9 or later is needed", program, strings.Fields(says)[1])
	case err != nil:
		return fmt.Errorf("%s does not run as Python: %w", program, err)
	}
	return fmt.Errorf("%s does not run as Python", program)
}

// prices are those of --price, as the settings have them.
func (o *rlmFlags) prices() (spec.Prices, error) {
	all := spec.Prices{}
	for _, given := range o.Prices {
		name, price, ok := strings.Cut(given, "=")
		in, out, both := strings.Cut(price, ",")
		input, err := strconv.ParseFloat(in, 64)
		output, err2 := strconv.ParseFloat(out, 64)
		if !ok || !both || name == "" || err != nil || err2 != nil || !(input >= 0 && output >= 0 && input+output < math.MaxFloat32) {
			return nil, usagef("--price %s: write NAME=INPUT,OUTPUT, such as llama3=0.2,0.6", given)
		}
		all[name] = spec.Price{Input: input, Output: output}
	}
	return all, nil
}

// srt are the settings of sandbox-runtime; nil for none. Their paths begin at the project
// folder.
func (o *rlmFlags) srt() (*srt.Settings, error) {
	if o.SRT == "" {
		return nil, nil
	}
	return srt.Load(o.SRT, srt.Options{Dir: o.Project})
}

// inContainer reports whether the kernel is one of Docker.
func (o *rlmFlags) inContainer() bool { return o.Docker || o.Image != "" }

// way is how the kernel is isolated.
func (o *rlmFlags) way() string {
	switch {
	case o.Plain:
		return "process"
	case o.inContainer():
		return "docker"
	}
	return "sandbox"
}

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
	if prices, err := o.prices(); err == nil && len(prices) > 0 { // check has told what is wrong
		settings["prices"] = prices
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
		"limits":   map[string]any{"body": "64MiB"}, // code and inputs are in one message
		"log":      map[string]any{"level": "warn"},
	})
	if err != nil {
		return nil, err
	}
	opts := c.serveOptions()
	opts.Path = filepath.Join(o.Project, "tine rlm") // where relative paths start
	cfg, err := config.Parse([]byte(strings.ReplaceAll(string(text), "${", "$${")), opts)
	if err != nil {
		return nil, usagef("%s", flagWords(err.Error()))
	}
	cfg.Path = ""
	return cfg, nil
}

// flagPlace is where an error of a config that is no file is.
var flagPlace = regexp.MustCompile(`(?m)^.*tine rlm:\d+:\d+: `)

// flagWords has words of the command line for those of the config.
func flagWords(text string) string {
	text = flagPlace.ReplaceAllString(text, "")
	for key, flag := range rlmSettings {
		text = strings.ReplaceAll(text, "servers.rlm.settings."+key, flag)
	}
	return rlmWords.Replace(text)
}

var rlmWords = strings.NewReplacer(
	"servers.rlm.sandbox.memory", "--memory", "servers.rlm.docker.memory", "--memory", "servers.rlm.docker.image", "--image",
	"servers.rlm.driver", "--no-isolation", "remove driver", "remove --no-isolation",
	"these servers don't start, since they want a sandbox: rlm", "the kernel does not start, since it wants a sandbox", "budget.cost", "--max-cost",
)

// leaveTime is how long calls go on when the client has left, which may still read.
const leaveTime = 10 * time.Second

// lastRead is a reader that tells its end.
type lastRead struct {
	io.Reader
	ended func()
}

func (r *lastRead) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && r.ended != nil {
		r.ended()
		r.ended = nil
	}
	return n, err
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := &lastRead{Reader: c.stdin, ended: func() {
		m.left.Store(true)
		m.ending()
		time.AfterFunc(leaveTime, cancel)
	}}
	err = m.p.gateway.ServeStdio(ctx, in, c.stdout, "", false)
	m.ending()
	if long := (*front.LineTooLong)(nil); errors.As(err, &long) {
		return fmt.Errorf("the client sent a message of more than %d MiB, which is the most; rlm_load brings large files into the kernel", long.Limit>>20)
	}
	return err
}
