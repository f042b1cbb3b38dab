package docker

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"github.com/spf13/pflag"

	"github.com/tine-mcp/tine/internal/config"
)

// runArgs takes flags of docker run over into a container. As with docker run
// the last one wins, and lists grow; beside a key that says the same a flag is
// refused.
type runArgs struct {
	c       config.Object
	s       *config.Server
	to      *Config
	secret  []string          // flags that came from a placeholder
	refused map[string]bool   // keys that a flag was refused for already
	own     map[string]string // variables of the entry itself
	byFlag  map[string]bool   // variables that a flag set
}

// takeRunArgs reads docker.run_args, after the keys beside it.
func takeRunArgs(c config.Object, s *config.Server, to *Config) {
	r := &runArgs{c: c, s: s, to: to, refused: map[string]bool{}, own: maps.Clone(s.Env), byFlag: map[string]bool{}}
	if n, ok := c.Lookup("run_args"); !ok || n.Shape != config.ShapeList {
		return
	}
	for _, item := range c.Get("run_args").Items {
		if item.From != "" {
			r.secret = append(r.secret, item.Text)
		}
		if item.Missing || !item.Scalar() {
			return // some flag would get the value of another
		}
	}
	fs := pflag.NewFlagSet("docker run", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.SetInterspersed(false)
	for _, list := range [][]runFlag{runFlags, refusedFlags, unknownKeyFlags()} {
		for i := range list {
			f := fs.VarPF(&flagValueOf{r, &list[i]}, list[i].name, list[i].short, "")
			if list[i].boolean {
				f.NoOptDefVal = "true"
			}
		}
	}
	r.end(fs.Parse(to.RunArgs), fs.Args())
}

// unknownKeyFlags are the flags of docker run that there is no key for.
func unknownKeyFlags() []runFlag {
	none := refuse("Tine has no key for it; remove it")
	var list []runFlag
	for _, name := range otherFlags {
		list = append(list, runFlag{name, otherShort[name], false, none})
	}
	for _, name := range otherSwitches {
		list = append(list, runFlag{name, "", true, none})
	}
	return list
}

// end says why the flags could not be read to their end.
func (r *runArgs) end(err error, rest []string) {
	var (
		unknown *pflag.NotExistError
		bare    *pflag.ValueRequiredError
		at      = r.c.Get("run_args").Pos
		path    = r.c.Path + ".run_args"
	)
	switch {
	case err == nil && len(rest) > 0:
		r.c.Fail(at, "%s: what is no flag can't stand here; the image goes to docker.image and its command to docker.command", path)
	case err == nil:
	case errors.As(err, &unknown):
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" {
			name = "-" + unknown.GetSpecifiedName()
		}
		if len(r.secret) > 0 {
			name = "one of them"
		}
		r.c.Fail(at, "%s: %s is no flag of docker run that Tine knows; remove it", path, config.Clip(name))
	case errors.As(err, &bare):
		r.c.Fail(at, "%s: --%s wants a value", path, bare.GetFlag().Name)
	default:
		r.c.Fail(at, "%s: can't be read as flags of docker run; write them like [--memory, 512m]", path)
	}
}

// flagValueOf hands a flag's values on. It never fails, so that all are read and
// none is quoted.
type flagValueOf struct {
	r *runArgs
	f *runFlag
}

func (v *flagValueOf) String() string { return "" }
func (v *flagValueOf) Type() string   { return "string" }

func (v *flagValueOf) Set(value string) error {
	if err := v.f.take(v.r, value); err != nil {
		v.r.fail(v.f, err)
	}
	return nil
}

func (r *runArgs) fail(f *runFlag, err error) {
	at := r.c.Get("run_args").Pos
	for _, item := range r.c.Get("run_args").Items {
		long, isLong := strings.CutPrefix(item.Text, "--")
		long, _, _ = strings.Cut(long, "=")
		short := !isLong && f.short != "" && strings.HasPrefix(item.Text, "-") && strings.Contains(item.Text, f.short)
		if isLong && long == f.name || short {
			at = item.Pos
			break
		}
	}
	r.c.Fail(at, "%s: --%s: %v", r.c.Path+".run_args", f.name, err)
}

// says reports a flag that a key of docker says too.
func (r *runArgs) says(key, value string) error {
	r.hide("docker."+key, value)
	if r.c.Get(key) == nil || r.refused[key] {
		return nil
	}
	r.refused[key] = true
	return fmt.Errorf("says what docker.%s says; keep one", key)
}

// hide keeps a value from view that came from a placeholder.
func (r *runArgs) hide(rel, value string) {
	for _, s := range r.secret {
		if value != "" && strings.Contains(s, value) {
			r.s.Hide(rel)
		}
	}
}

func (r *runArgs) add(key string, list *[]string, v string) {
	if key != "" {
		r.hide("docker."+key+"."+strconv.Itoa(len(*list)), v)
	}
	*list = append(*list, v)
}

func (r *runArgs) word(key string, dst *string, v string) error {
	if !config.OneWord.MatchString(v) {
		return errors.New("wants one word")
	}
	err := r.says(key, v)
	*dst = v
	return err
}

func (r *runArgs) flag(key string, dst *bool, v string) error {
	on, err := strconv.ParseBool(v)
	if err != nil {
		return errors.New("wants true or false")
	}
	if key != "" {
		err = r.says(key, v)
	}
	*dst = on
	return err
}

func (r *runArgs) bytes(key string, dst *int64, v string, least int64) error {
	n, err := units.RAMInBytes(v)
	if err != nil {
		return errors.New("wants a size, like 512m or 2g")
	}
	if n < least || n > config.MaxBytes {
		return fmt.Errorf("is out of range; want %s to %s", config.FormatSize(least), config.FormatSize(config.MaxBytes))
	}
	*dst = n
	return r.says(key, v)
}

func (r *runArgs) capability(key string, list *[]string, v string) error {
	if !capName.MatchString(v) {
		return errors.New("wants a capability, like NET_BIND_SERVICE")
	}
	r.add(key, list, strings.ToUpper(v))
	return nil
}
