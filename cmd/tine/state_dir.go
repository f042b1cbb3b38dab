package main

import (
	"errors"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// stateDir is the state folder: --state, TINE_STATE, or this system's usual place.
// It is not created here.
func (c *cli) stateDir() (string, error) {
	dir := c.flags.state
	if dir == "" {
		dir = c.getenv("TINE_STATE")
	}
	if dir == "" {
		dir = defaultStateDir(runtime.GOOS, c.getenv)
	}
	if dir == "" {
		return "", errors.New("there is no home folder to keep state in; set --state or TINE_STATE")
	}
	return filepath.Abs(dir)
}

// stateFlag is the flag that names a state folder in an advised command: empty for
// the default one.
func (c *cli) stateFlag(state string) string {
	if home := defaultStateDir(runtime.GOOS, c.getenv); home != "" && filepath.Clean(home) == state {
		return ""
	}
	return stateFlag(state)
}

// own is a command on the same gateway or state folder: with the flags that this
// command was given to find it. Environment variables hold for the next command
// too. A token is not repeated, as it would be shown. "tine serve" looks for no gateway.
func (c *cli) own(command string) string {
	serve := strings.HasSuffix(command, "tine serve") || strings.Contains(command, "tine serve ")
	if c.flags.url != "" && !serve {
		command += " --url " + shellWord(c.flags.url)
	}
	if c.flags.tokenFile != "" && !serve {
		command += " --token-file " + shellWord(c.flags.tokenFile)
	}
	if c.flags.state != "" {
		if state, err := c.stateDir(); err == nil {
			command = withFlag(command, c.stateFlag(state))
		}
	}
	return c.named(command)
}

// advised finds commands in messages: in backquotes, or after a verb that advises
// them, up to the end of the clause.
var advised = regexp.MustCompile("(`|see |run: )(tine [a-z](?:[^`;,()\\n]*[^`;,()\\s])?)")

// ownAll makes the advised commands of a message work as they stand. The message
// may be the gateway's, which does not know how it was reached.
func (c *cli) ownAll(message string) string {
	return advised.ReplaceAllStringFunc(message, func(found string) string {
		if strings.Contains(found, "--state") || strings.Contains(found, "--url") || strings.HasSuffix(found, "--help") {
			return c.named(found)
		}
		return c.own(found)
	})
}

// withFlag is a command with a flag that may be empty.
func withFlag(command, flag string) string {
	if flag == "" {
		return command
	}
	return command + " " + flag
}

func stateFlag(state string) string { return "--state " + shellWord(state) }

// shellWord is a word as a shell reads it.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/.,:_-+@%~\\", r)
	}
	if s != "" && !strings.HasPrefix(s, "~") && strings.TrimFunc(s, plain) == "" && (runtime.GOOS == "windows" || !strings.Contains(s, "\\")) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// defaultStateDir is empty when the environment does not say where home is.
func defaultStateDir(goos string, getenv func(string) string) string {
	// A relative XDG folder is to be ignored, as its specification has it.
	if xdg := getenv("XDG_STATE_HOME"); filepath.IsAbs(xdg) {
		return filepath.Join(xdg, "tine")
	}
	switch goos {
	case "windows":
		if local := getenv("LOCALAPPDATA"); local != "" {
			return filepath.Join(local, "tine")
		}
		if home := getenv("USERPROFILE"); home != "" {
			return filepath.Join(home, "AppData", "Local", "tine")
		}
	case "darwin":
		if home := getenv("HOME"); home != "" {
			return filepath.Join(home, "Library", "Application Support", "tine")
		}
	default:
		if home := getenv("HOME"); home != "" {
			return filepath.Join(home, ".local", "state", "tine")
		}
	}
	return ""
}
