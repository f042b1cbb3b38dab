package packages

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Parse reads a command that fetches packages when it starts. It reports false
// for all other commands, and an error for one that it knows and can't take
// apart, such as npx -c.
func Parse(command string, args []string) (*Wanted, bool, error) {
	w, ok, err := parse(command, args)
	if ok && err == nil {
		err = w.check()
	}
	return w, ok, err
}

func parse(command string, args []string) (*Wanted, bool, error) {
	var w *Wanted
	var err error
	first := ""
	if len(args) > 0 {
		first = args[0]
	}
	switch tool(command) {
	case "npx":
		w, err = parseNPX("npx", args, false)
	case "npm":
		if first != "exec" && first != "x" {
			return nil, false, nil
		}
		w, err = parseNPX("npm "+first, args[1:], true)
	case "uvx":
		w, err = parseUVX("uvx", args)
	case "uv":
		if first != "tool" || len(args) < 2 || args[1] != "run" {
			return nil, false, nil
		}
		w, err = parseUVX("uv tool run", args[2:])
	case "pipx":
		if first != "run" {
			return nil, false, nil
		}
		w, err = parsePipx(args[1:])
	default:
		return nil, false, nil
	}
	if err != nil {
		return nil, true, err
	}
	w.Tool = command
	return w, true, nil
}

// tool is the name of a command without folder and Windows' endings.
func tool(command string) string {
	name := filepath.Base(command)
	for _, end := range []string{".exe", ".cmd", ".ps1"} {
		name = strings.TrimSuffix(name, end)
	}
	return name
}

// An option of a command: what to do with its value, or nil for one that has no
// bearing on what is fetched.
type option struct {
	names  []string
	value  bool
	refuse string // why not, and what to do
	take   func(value string)
}

// parseOptions takes options off the front of args and returns the rest. Where
// options may stand after words (npm exec), only -- ends them.
func parseOptions(command string, args []string, options []option, between bool) (rest []string, err error) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return append(rest, args[i+1:]...), nil
		case len(arg) < 2 || arg[0] != '-':
			if !between {
				return args[i:], nil
			}
			rest = append(rest, arg)
			continue
		}
		name, value, inline := arg, "", false
		if strings.HasPrefix(arg, "--") {
			name, value, inline = strings.Cut(arg, "=")
		} else if len(arg) > 2 { // -p3.12, and -p=x as npx has it
			name, value, inline = arg[:2], strings.TrimPrefix(arg[2:], "="), true
		}
		at := slices.IndexFunc(options, func(o option) bool { return slices.Contains(o.names, name) })
		if at < 0 {
			return nil, fmt.Errorf("%s: option %s is not understood for a command whose packages are fetched ahead; leave it out, or give the package's own program as the command", command, name)
		}
		o := options[at]
		switch {
		case o.refuse != "":
			return nil, fmt.Errorf("%s %s: %s", command, name, o.refuse)
		case o.value && !inline:
			if i++; i == len(args) {
				return nil, fmt.Errorf("%s: option %s has no value", command, name)
			}
			value = args[i]
		case !o.value && inline && (value == "false" || !strings.HasPrefix(arg, "--")):
			return nil, fmt.Errorf("%s: option %s takes no value; give options one by one", command, name)
		}
		if o.take != nil {
			o.take(value)
		}
	}
	return rest, nil
}

func parseNPX(command string, args []string, between bool) (*Wanted, error) {
	w := &Wanted{Kind: NPM}
	var packages []string
	local := "it runs what is installed already; name the program itself as the command"
	rest, err := parseOptions(command, args, []option{
		{names: []string{"-y", "--yes", "-q", "--quiet", "-s", "--silent", "--prefer-online", "--prefer-offline", "--ignore-existing", "--no-audit", "--no-fund", "--no-update-notifier", "-d", "--verbose"}},
		{names: []string{"--loglevel", "--cache", "--script-shell", "--shell"}, value: true},
		{names: []string{"-p", "--package"}, value: true, take: func(v string) { packages = append(packages, v) }},
		{names: []string{"--registry"}, value: true, take: func(v string) { w.set("npm_config_registry", v) }},
		{names: []string{"-c", "--call"}, refuse: "a line of shell can't be taken apart; give a package and its arguments: npx [-p PACKAGE] PROGRAM ARGS"},
		{names: []string{"--no", "--no-install", "--no-yes", "--offline"}, refuse: local},
		{names: []string{"-w", "--workspace", "--workspaces", "--prefix", "-g", "--global"}, refuse: local},
	}, between)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, fmt.Errorf("%s: no package is named; give %s PACKAGE ARGS", command, command)
	}
	w.Args = rest[1:]
	if len(packages) == 0 {
		w.Package = rest[0]
		return w, nil
	}
	w.Package, w.Extra, w.Bin = packages[0], packages[1:], rest[0]
	return w, nil
}

func parseUVX(command string, args []string) (*Wanted, error) {
	w := &Wanted{Kind: Python}
	from := ""
	local := "a file or folder beside the server is not fetched; use --with PACKAGE"
	index := func(name string) func(string) { return func(v string) { w.set(name, v) } }
	more := func(v string) { w.set("UV_INDEX", strings.TrimSpace(w.Settings["UV_INDEX"]+" "+v)) }
	rest, err := parseOptions(command, args, []option{
		{names: []string{"-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--refresh", "-U", "--upgrade", "--isolated", "--no-progress", "--no-config", "--no-env-file", "--managed-python", "--no-managed-python", "--no-python-downloads", "--native-tls"}},
		{names: []string{"--color", "--cache-dir", "--refresh-package", "--link-mode", "--allow-insecure-host"}, value: true},
		{names: []string{"--from"}, value: true, take: func(v string) { from = v }},
		{names: []string{"-w", "--with"}, value: true, take: func(v string) { w.Extra = append(w.Extra, splitRequirements(v)...) }},
		{names: []string{"-p", "--python"}, value: true, take: func(v string) { w.Python = v }},
		{names: []string{"-i", "--index-url", "--default-index"}, value: true, take: index("UV_DEFAULT_INDEX")},
		{names: []string{"--index", "--extra-index-url"}, value: true, take: more},
		{names: []string{"--index-strategy"}, value: true, take: index("UV_INDEX_STRATEGY")},
		{names: []string{"--prerelease"}, value: true, take: index("UV_PRERELEASE")},
		{names: []string{"--exclude-newer"}, value: true, take: index("UV_EXCLUDE_NEWER")},
		{names: []string{"--with-editable", "--with-requirements", "-c", "--constraints", "--overrides", "-b", "--build-constraints", "--env-file", "--directory", "--project", "--config-file", "-f", "--find-links"}, refuse: local},
		{names: []string{"--offline"}, refuse: "packages are fetched once, with network, and the server runs without; leave it out"},
	}, false)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, fmt.Errorf("%s: no package is named; give %s PACKAGE ARGS", command, command)
	}
	w.Args = rest[1:]
	if from != "" {
		w.Package, w.Bin = from, rest[0]
	} else {
		w.Package = rest[0]
	}
	if name := requirementName(w.Package); from == "" && (name == "python" || name == "python3") {
		return nil, fmt.Errorf("%s %s: this is an interpreter and no package; set the command to python3, or use --from PACKAGE", command, rest[0])
	}
	w.Package = atToEquals(w.Package)
	return w, nil
}

func parsePipx(args []string) (*Wanted, error) {
	w := &Wanted{Kind: Python}
	spec := ""
	rest, err := parseOptions("pipx run", args, []option{
		{names: []string{"-q", "--quiet", "-v", "--verbose", "--no-cache"}},
		{names: []string{"--spec"}, value: true, take: func(v string) { spec = v }},
		{names: []string{"--python"}, value: true, take: func(v string) { w.Python = v }},
		{names: []string{"-i", "--index-url"}, value: true, take: func(v string) { w.set("PIP_INDEX_URL", v) }},
		{names: []string{"--with"}, value: true, take: func(v string) { w.Extra = append(w.Extra, v) }},
		{names: []string{"--path", "--pypackages", "--pip-args", "--system-site-packages", "--editable", "-e"}, refuse: "it depends on what lies on the host; name a package: pipx run [--spec PACKAGE] PROGRAM ARGS"},
	}, false)
	if err != nil {
		return nil, err
	}
	if len(rest) == 0 {
		return nil, fmt.Errorf("pipx run: no package is named; give pipx run PACKAGE ARGS")
	}
	w.Package, w.Args = rest[0], rest[1:]
	if spec != "" {
		w.Package, w.Bin = spec, rest[0]
	}
	return w, nil
}

func (w *Wanted) set(name, value string) {
	if w.Settings == nil {
		w.Settings = make(map[string]string)
	}
	w.Settings[name] = value
}
