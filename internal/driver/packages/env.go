package packages

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// What an installer gets of the gateway's environment: how to reach a registry,
// and no more. Names are compared in upper case.
var (
	passed = []string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
		"SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
		"LANG", "LC_ALL", "TZ", "NETRC", "NPM_TOKEN", "NODE_AUTH_TOKEN", "NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY",
		"SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "PATHEXT", "WINDIR", "PROGRAMFILES", "PROGRAMDATA", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",

		"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_PRE", "PIP_CERT", "PIP_CLIENT_CERT",
		"PIP_TRUSTED_HOST", "PIP_PROXY", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_CONFIG_FILE", "PIP_KEYRING_PROVIDER",

		"UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_KEYRING_PROVIDER", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS",
		"UV_INSECURE_HOST", "UV_HTTP_TIMEOUT", "UV_HTTP_RETRIES", "UV_REQUEST_TIMEOUT", "UV_CONFIG_FILE", "UV_EXCLUDE_NEWER", "UV_PRERELEASE",
		"UV_PYTHON_DOWNLOADS", "UV_PYTHON_PREFERENCE", "UV_PYTHON_INSTALL_DIR", "UV_PYTHON_INSTALL_MIRROR", "UV_PYTHON_DOWNLOADS_JSON_URL",

		"NPM_CONFIG_CAFILE", "NPM_CONFIG_CA", "NPM_CONFIG_CERT", "NPM_CONFIG_KEY", "NPM_CONFIG_PROXY", "NPM_CONFIG_HTTPS_PROXY", "NPM_CONFIG_HTTP_PROXY",
		"NPM_CONFIG_NOPROXY", "NPM_CONFIG_STRICT_SSL", "NPM_CONFIG_USERCONFIG", "NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_MAXSOCKETS", "NPM_CONFIG_TAG",
		"NPM_CONFIG_BEFORE", "NPM_CONFIG_MIN_RELEASE_AGE",
	}
	passedPrefixes = []string{"UV_INDEX", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_@", "NPM_CONFIG_//", "NPM_CONFIG_FETCH_"}
)

func passes(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains(passed, name) || slices.ContainsFunc(passedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// asks reports whether a variable helps to find the interpreter behind a shim,
// such as those of pyenv, nvm, asdf, mise and Volta.
func asks(name string) bool {
	name = strings.ToUpper(name)
	return slices.Contains([]string{"HOME", "USER", "SYSTEMROOT", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA", "LOCALAPPDATA", "XDG_DATA_HOME", "XDG_CONFIG_HOME"}, name) ||
		slices.ContainsFunc([]string{"PYENV_", "NVM_", "ASDF_", "MISE_", "VOLTA_", "FNM_", "NODENV_"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// place reports whether a variable says where packages come from, or which are
// chosen: with another value a wish is another one.
func place(name string) bool {
	name = strings.ToUpper(name)
	if !passes(name) || strings.HasPrefix(name, "UV_INDEX_") && (strings.HasSuffix(name, "_USERNAME") || strings.HasSuffix(name, "_PASSWORD")) {
		return false
	}
	return slices.ContainsFunc([]string{"REGISTRY", "INDEX", "FIND_LINKS", "EXCLUDE_NEWER", "PRERELEASE", "PIP_PRE", "NPM_CONFIG_TAG", "NPM_CONFIG_BEFORE"},
		func(part string) bool { return strings.Contains(name, part) })
}

// surroundings are what the steps of one fetch run in.
type surroundings struct {
	vars    map[string]string // for installers, with a private home
	host    map[string]string // for asking the host's own interpreters for their versions
	secrets secrets
}

// surround makes the environment of a fetch with a private home.
func (s *Store) surround(w Wanted, home string) surroundings {
	gateway := map[string]string{}
	for _, kv := range s.opts.Environ() {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			gateway[name] = value
		}
	}
	around := surroundings{vars: map[string]string{}, host: map[string]string{}}
	for name, value := range gateway {
		if asks(name) {
			around.host[name] = value
		}
	}
	vars := around.vars
	for _, from := range []map[string]string{gateway, w.Env, w.Settings} {
		for name, value := range from {
			if passes(name) {
				vars[name] = value
			}
		}
	}
	userHome := cmp.Or(gateway["HOME"], gateway["USERPROFILE"])
	config := func(variable string, paths ...string) {
		path := vars[variable]
		for _, p := range paths {
			if _, err := os.Stat(p); path == "" && userHome != "" && err == nil {
				path = p
				vars[variable] = p
			}
		}
		if path == "" {
			return
		}
		for _, name := range around.secrets.addConfig(path) {
			if value, ok := gateway[name]; ok {
				vars[name] = value
				around.secrets.add(value)
			}
		}
	}
	configHome := cmp.Or(gateway["XDG_CONFIG_HOME"], filepath.Join(userHome, ".config"))
	config("NPM_CONFIG_USERCONFIG", cmp.Or(vars["npm_config_userconfig"], filepath.Join(userHome, ".npmrc")))
	config("PIP_CONFIG_FILE", filepath.Join(configHome, "pip", "pip.conf"), filepath.Join(userHome, ".pip", "pip.conf"),
		filepath.Join(userHome, "Library", "Application Support", "pip", "pip.conf"), filepath.Join(gateway["APPDATA"], "pip", "pip.ini"))
	config("UV_CONFIG_FILE", filepath.Join(configHome, "uv", "uv.toml"))
	config("NETRC", filepath.Join(userHome, ".netrc"))

	oneIndex(vars)
	for name, value := range vars {
		if secretName(name) {
			around.secrets.add(value)
		}
		around.secrets.addURLs(value)
	}
	for _, spec := range w.specs() {
		around.secrets.addURLs(spec)
	}

	path := cmp.Or(w.Env["PATH"], gateway["PATH"])
	if strings.ContainsRune(w.Tool, filepath.Separator) {
		path = filepath.Dir(w.Tool) + string(filepath.ListSeparator) + path
	}
	around.host["PATH"], vars["PATH"] = path, path
	vars["HOME"] = home
	vars["TMPDIR"] = filepath.Join(home, "tmp")
	if runtime.GOOS == "windows" {
		for _, name := range []string{"USERPROFILE", "APPDATA", "LOCALAPPDATA"} {
			vars[name] = home
		}
		vars["TEMP"], vars["TMP"] = vars["TMPDIR"], vars["TMPDIR"]
	}
	vars["CI"] = "1"                  // no questions, no bars
	vars["NO_COLOR"] = "1"            // lines go into errors
	vars["GIT_TERMINAL_PROMPT"] = "0" // a password would be waited for
	vars["PYTHONUNBUFFERED"] = "1"
	// npm would wait for more than a minute for a registry that does not answer.
	for name, value := range map[string]string{"npm_config_fetch_retry_mintimeout": "1000", "npm_config_fetch_retry_maxtimeout": "10000"} {
		if vars[name] == "" && vars[strings.ToUpper(name)] == "" {
			vars[name] = value
		}
	}
	if vars["UV_PYTHON_INSTALL_DIR"] == "" {
		vars["UV_PYTHON_INSTALL_DIR"] = filepath.Join(s.dir, pythonDir)
	}
	return around
}

// oneIndex lets pip and uv agree on where packages come from, whichever of the
// two the settings were written for.
func oneIndex(vars map[string]string) {
	for _, same := range [][]string{
		{"UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"},
		{"UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL"},
	} {
		uv := cmp.Or(vars[same[0]], vars[same[1]])
		pip := vars[same[2]]
		if uv == "" && pip != "" {
			vars[same[0]] = pip
		}
		if uv != "" {
			vars[same[2]] = unnamed(uv) // a setting of uvx is nearer to the command
		}
	}
}

// unnamed takes the names off indexes: uv has name=URL.
func unnamed(list string) string {
	words := strings.Fields(list)
	for i, word := range words {
		if name, rest, ok := strings.Cut(word, "="); ok && !strings.Contains(name, "/") {
			words[i] = rest
		}
	}
	return strings.Join(words, " ")
}

func environ(vars map[string]string) []string {
	all := make([]string, 0, len(vars))
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		all = append(all, name+"="+vars[name])
	}
	return all
}
