package family

import (
	"maps"
	"runtime"
	"slices"
	"strings"
)

// Variable carries the tokens of the families that a process belongs to, from
// the outermost to its own: a gateway that runs in a family of another one
// adds to it, so that ending the outer one ends everything inside.
const (
	Variable  = "TINE_INSTANCE"
	Separator = ":"
)

// What a program gets of the gateway's environment. The rest may hold secrets of
// the gateway or of other programs, such as tokens, or proxies with passwords in
// their URLs: a program that needs one is given it.
var (
	passed = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ",
		"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
	}
	passedPrefixes = []string{"LC_", "XDG_"}
	passedWindows  = []string{
		"ALLUSERSPROFILE", "APPDATA", "COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMSPEC", "COMPUTERNAME",
		"HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "NUMBER_OF_PROCESSORS", "OS", "PATHEXT", "PROCESSOR_ARCHITECTURE",
		"PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432", "PSMODULEPATH", "PUBLIC",
		"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERDOMAIN", "USERNAME", "USERPROFILE", "WINDIR",
	}
)

// An Environment is a set of variables. On Windows names differ in more than case.
type Environment struct {
	fold   bool
	names  map[string]string // folded name to name
	values map[string]string // folded name to value
}

func (e *Environment) key(name string) string {
	if e.fold {
		return strings.ToUpper(name)
	}
	return name
}

func (e *Environment) set(name, value string) {
	e.names[e.key(name)] = name
	e.values[e.key(name)] = value
}

// Get returns the value of a variable, empty for none.
func (e *Environment) Get(name string) string { return e.values[e.key(name)] }

// List returns the variables as NAME=value, sorted.
func (e *Environment) List() []string {
	out := make([]string, 0, len(e.names))
	for _, k := range slices.Sorted(maps.Keys(e.names)) {
		out = append(out, e.names[k]+"="+e.values[k])
	}
	return out
}

// NewEnvironment makes the environment of a program from the gateway's, its own,
// its folder and its token.
func NewEnvironment(gateway []string, own map[string]string, cwd, token string) *Environment {
	return environmentOn(runtime.GOOS == "windows", gateway, own, cwd, token)
}

func environmentOn(windows bool, gateway []string, own map[string]string, cwd, token string) *Environment {
	e := &Environment{fold: windows, names: make(map[string]string), values: make(map[string]string)}
	marker := token
	for _, kv := range gateway {
		name, value, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if e.key(name) == Variable && value != "" {
			marker = value + Separator + token
		}
		if passes(e.key(name), windows) {
			e.set(name, value)
		}
	}
	if cwd != "" && !windows {
		e.set("PWD", cwd)
	}
	for name, value := range own {
		e.set(name, value)
	}
	e.set(Variable, marker)
	return e
}

func passes(name string, windows bool) bool {
	if slices.Contains(passed, name) || windows && slices.Contains(passedWindows, name) {
		return true
	}
	return slices.ContainsFunc(passedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
