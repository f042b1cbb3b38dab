package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tine-mcp/tine/internal/config"
)

// findConfig returns the config file that a command uses: the one its --config
// names, TINE_CONFIG, tine.yaml or tine.yml here, or the user's own. It is empty if
// there is none and the built-in defaults hold. Files of other programs, such as
// .mcp.json, must be named: starting everything that a folder lists would be a
// surprise.
func (c *cli) findConfig(flag string) (string, error) {
	if flag != "" {
		return named(flag, "--config")
	}
	if path := c.getenv("TINE_CONFIG"); path != "" {
		return named(path, "TINE_CONFIG")
	}
	for _, path := range c.configSearch() {
		info, err := os.Stat(path)
		switch {
		case err == nil && info.IsDir():
			continue
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrNotExist):
			continue
		}
		return "", fmt.Errorf("look for a config: %w; mend it, or name a config with --config", err)
	}
	return "", nil
}

// configSearch lists where a config is looked for when none is named.
func (c *cli) configSearch() []string {
	paths := []string{"tine.yaml", "tine.yml"}
	if dir := userConfigDir(runtime.GOOS, c.getenv); dir != "" {
		paths = append(paths, filepath.Join(dir, "tine", "tine.yaml"))
	}
	return paths
}

// userConfigDir is empty when the environment does not say where home is.
func userConfigDir(goos string, getenv func(string) string) string {
	if xdg := getenv("XDG_CONFIG_HOME"); filepath.IsAbs(xdg) {
		return xdg
	}
	if goos == "windows" {
		return getenv("APPDATA")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".config")
	}
	return ""
}

func named(path, by string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("config that %s names: %w", by, err)
	}
	if info.IsDir() {
		return "", fmt.Errorf("config that %s names: %s is a folder; name the file in it", by, path)
	}
	return path, nil
}

// configOptions lets a config see the environment of this program, and its state folder.
func (c *cli) configOptions() config.Options {
	state, _ := c.stateDir() // without one there is nothing to guard
	return config.Options{Getenv: c.lookupEnv, State: state, Settings: builtinSettings()}
}
