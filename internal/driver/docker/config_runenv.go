package docker

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/config"
)

// env takes NAME=value, or NAME alone for the variable of the gateway, which is
// left out where there is none. What the entry's own env says wins.
func (r *runArgs) env(text string) error {
	name, value, given := strings.Cut(text, "=")
	if name == "" || strings.ContainsAny(name, " \t") {
		return errors.New("wants NAME=value")
	}
	if !given {
		var ok bool
		if value, ok = r.c.Getenv(name); !ok {
			return nil
		}
	}
	r.setEnv(name, value, !given, false)
	return nil
}

// setEnv sets a variable that neither the entry itself sets nor, for one of a
// file, a flag.
func (r *runArgs) setEnv(name, value string, secret, file bool) {
	if _, ok := r.own[name]; ok || file && r.byFlag[name] {
		return
	}
	r.byFlag[name] = r.byFlag[name] || !file
	if r.s.Env == nil {
		r.s.Env = map[string]string{}
	}
	r.s.Env[name] = value
	r.s.Unhide("env." + name)
	if secret {
		r.s.Hide("env." + name)
	}
	r.hide("env."+name, value)
}

// envFile takes a file as docker run reads it: a line is NAME=value or NAME, with
// no quotes and no comments after a value.
func (r *runArgs) envFile(name string) error {
	path := r.c.Resolve(name)
	data, err := r.c.ReadFile(path)
	switch {
	case err != nil:
		// As with env_file the server is off, and others are not.
		r.s.Disabled = fmt.Sprintf("server %q is off: run_args: read %s: %v", r.s.ID, path, err)
		return nil
	case len(data) > config.MaxIncluded:
		return errors.New("names a file that is larger than 1 MiB")
	case !utf8.Valid(data) || strings.ContainsRune(string(data), 0):
		return errors.New("names a file that is not UTF-8 text")
	}
	for i, line := range strings.Split(strings.TrimPrefix(string(data), "\ufeff"), "\n") {
		line = strings.TrimLeft(strings.TrimRight(line, "\r"), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, given := strings.Cut(line, "=")
		if name == "" || strings.ContainsAny(name, " \t") {
			return fmt.Errorf("names a file whose line %d is not NAME=value", i+1)
		}
		if !given {
			var ok bool
			if value, ok = r.c.Getenv(name); !ok {
				continue
			}
		}
		r.setEnv(name, value, true, true)
	}
	return nil
}

func (r *runArgs) volume(text string) error {
	b, err := parseVolume(text)
	if err != nil {
		return err
	}
	return r.bind(b)
}

func (r *runArgs) mount(text string) error {
	b, tmpfs, err := parseMount(text)
	switch {
	case err != nil:
		return err
	case tmpfs != "":
		r.add("tmpfs", &r.to.Tmpfs, tmpfs)
		return nil
	}
	return r.bind(b)
}

func (r *runArgs) bind(b Bind) error {
	rel := "docker.binds." + strconv.Itoa(len(r.to.Binds))
	r.hide(rel+".source", b.Source)
	r.hide(rel+".target", b.Target)
	if err := bindSource(r.c, &b); err != nil {
		return err
	}
	r.to.Binds = append(r.to.Binds, b)
	return nil
}
