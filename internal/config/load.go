package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"
)

// Options say where a config finds what is outside its file. The zero value
// uses the process: its environment, its files, its user's home.
type Options struct {
	// Path names the file in messages, and its folder is where relative paths
	// start. Load sets it.
	Path string
	// Home is what ~ means.
	Home string
	// Getenv looks up a variable, like os.LookupEnv.
	Getenv func(string) (string, bool)
	// ReadFile reads what ${file:PATH}, env_file and key_file name.
	ReadFile func(string) ([]byte, error)
	// Memory is how much this machine has, in bytes; zero when that is not known.
	Memory func() int64
	// OS is what this machine runs, as Go names it.
	OS string
	// State is the state folder of the gateway, which no server may be given; empty
	// where it is not known.
	State string
	// Settings say what is wrong with the settings of built-in servers, by their names.
	Settings map[string]func(settings map[string]any) error
	// OtherAuth says that there are tokens elsewhere than in the file, or that
	// the caller will see to it with CheckExposure, so that none in the file is
	// no reason to refuse an address.
	OtherAuth bool
}

func (o Options) filled() Options {
	if o.Getenv == nil {
		o.Getenv = os.LookupEnv
	}
	if o.ReadFile == nil {
		o.ReadFile = readIncluded
	}
	if o.Memory == nil {
		o.Memory = machineMemory
	}
	if o.OS == "" {
		o.OS = runtime.GOOS
	}
	if o.Home == "" {
		// Without a home ~ stays as it is, and opening the path fails.
		o.Home, _ = os.UserHomeDir()
	}
	return o
}

// Load reads a config file of any format it knows. Without a path it is
// Default, with MCP_REMOTE_SERVERS on top like any other.
func Load(path string, opts Options) (*Config, error) {
	opts.Path = path
	if path == "" {
		d := newDecoder(opts)
		return d.finish(standard(d.opts.Memory()))
	}
	data, err := readBounded(path, maxJSONBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read config: %w; create it, or name another file", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	return Parse(data, opts)
}

// Parse reads a config from memory. Every error of its content is an *Error.
func Parse(data []byte, opts Options) (*Config, error) {
	d := newDecoder(opts)
	t, err := readTree(data, opts.Path)
	if err != nil {
		return nil, d.unreadable(err)
	}
	c := bare(d.opts.Memory())
	c.Path = opts.Path
	switch f := detect(t); f {
	case formatTine:
		d.duplicates(t)
		d.config(t.root, c)
	case formatRewardKit:
		d.duplicates(t)
		d.rewardKit(t.root, c)
	default:
		d.foreign(t, f, c)
	}
	return d.finish(c)
}

func newDecoder(opts Options) *decoder {
	opts = opts.filled()
	d := &decoder{opts: opts, separator: DefaultSeparator, entryKeys: serverTable.About()}
	d.file = opts.Path
	if d.file == "" {
		d.file = "config"
	}
	d.recordReads()
	p := paths{dir: folderOf(opts.Path), home: opts.Home}
	d.res = resolver{getenv: opts.Getenv, readFile: d.opts.ReadFile, paths: p, workspace: workspaceOf(p.dir)}
	return d
}

// unreadable is the error of a file without a tree.
func (d *decoder) unreadable(err error) error {
	var s *syntaxError
	if errors.As(err, &s) {
		d.fail(s.pos, "%s", s.msg)
		return d.err()
	}
	return err
}

func (d *decoder) duplicates(t *tree) {
	for _, dup := range t.dups {
		d.fail(dup.pos, "key %q stands twice, first on line %d; keep one", Clip(dup.key), dup.firstLine)
	}
}

// finish adds the servers of the environment, checks what needs the whole, and
// closes the report.
func (d *decoder) finish(c *Config) (*Config, error) {
	problems := d.remoteServers(c)
	d.otlpEnvironment(c)
	for i := range c.Servers {
		SetDefault(&c.Servers[i].Journal, c.Journal.Mode)
	}
	d.checkWhole(c)
	if err := d.err(); err != nil || len(problems) > 0 {
		return nil, bounded(append(d.problems, problems...))
	}
	if len(c.Servers) == 0 {
		d.warn(Pos{}, "there are no servers; add one under servers:")
	}
	c.Warnings = d.boundedWarnings()
	return c, nil
}

var byteOrderMark = []byte("\xef\xbb\xbf")

// readTree reads JSON or YAML, by what the text looks like.
func readTree(data []byte, path string) (*tree, error) {
	data = bytes.TrimPrefix(data, byteOrderMark)
	if err := checkText(data); err != nil {
		return nil, err
	}
	if !looksLikeJSON(data) {
		return readYAML(data)
	}
	t, err := readJSON(data)
	if ext := strings.ToLower(filepath.Ext(path)); err != nil && (ext == ".yaml" || ext == ".yml") {
		// YAML may start with a brace as well.
		return readYAML(data)
	}
	return t, err
}

// checkText refuses what is no text, or too much of it.
func checkText(data []byte) error {
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return &syntaxError{newLocator(data).at(at), "the file is not UTF-8 text from here on; save it as UTF-8"}
	}
	if len(data) > maxJSONBytes {
		return &syntaxError{Pos{}, "the file is larger than 16 MiB"}
	}
	return nil
}

func looksLikeJSON(data []byte) bool {
	for {
		data = bytes.TrimLeft(data, " \t\r\n")
		var end []byte
		switch {
		case bytes.HasPrefix(data, []byte("//")):
			end = []byte("\n")
		case bytes.HasPrefix(data, []byte("/*")):
			end = []byte("*/")
		default:
			return len(data) > 0 && (data[0] == '{' || data[0] == '[')
		}
		_, rest, ok := bytes.Cut(data, end)
		if !ok {
			return true
		}
		data = rest
	}
}

// format is a way of writing servers down.
type format int

const (
	formatTine       format = iota
	formatMCPServers        // {"mcpServers": {...}}: Claude, Cursor, Windsurf, Cline and others
	formatVSCode            // {"servers": {...}, "inputs": [...]}
	formatRewardKit         // backends: [...]
)

// keyMCPServers is the key by which files of other programs are known.
const keyMCPServers = "mcpServers"

// detect tells formats apart by what is in them: names of files say little, as
// people copy and rename them.
func detect(t *tree) format {
	root := t.root
	if root.Shape != ShapeMap {
		return formatTine
	}
	has := func(key string, k Shape) bool { n := root.Get(key); return n != nil && n.Shape == k }
	given := func(key string) bool { n := root.Get(key); return n != nil && n.Shape != ShapeNull }
	ours := false
	for _, key := range topTable.Names() {
		ours = ours || key != "servers" && given(key)
	}
	switch {
	case has("backends", ShapeList) && isRewardKit(root.Get("backends")):
		return formatRewardKit
	case root.Get(keyMCPServers) != nil && !given("servers") && (t.json || !ours):
		return formatMCPServers
	case ours:
		return formatTine
	case has("mcp", ShapeMap) && root.Get("mcp").Get("servers") != nil && !given("servers"):
		return formatVSCode
	case !given("servers") && hasProjects(root):
		return formatMCPServers
	case has("inputs", ShapeList) && given("servers"):
		return formatVSCode
	case t.json && has("servers", ShapeMap) && !onlyOurs(root.Get("servers")):
		return formatVSCode
	}
	return formatTine
}

func isRewardKit(backends *Node) bool {
	for _, b := range backends.Items {
		if b.Get("backend_name_ref") != nil {
			return true
		}
	}
	return false
}

// onlyOurs reports whether an entry of a JSON servers map has a key that no
// editor knows.
func onlyOurs(servers *Node) bool {
	for _, p := range servers.Pairs {
		for _, k := range p.Value.Pairs {
			switch k.Key {
			case "builtin", "scope", "driver", "transport", "tools", "eager", "protocol",
				"client_capabilities", "connect_timeout", "settings", "ca_file", "env_file", "title",
				"auth", "credential", "policy", "journal", "state", "template", "workspace", "fork", "budget",
				"docker", "remote", "preset", "startup", "merged", "warm", "fork_ahead", "on_fork":
				return true
			case "sandbox":
				// VS Code has one of its own, which counts with another key beside it.
				return p.Value.Get("sandboxEnabled") == nil
			}
		}
	}
	return false
}
