package config

import (
	"fmt"
	"slices"
	"strings"
)

// A Front is a built-in server that has a program as its body. An entry of one is read
// as the entry of that program, whose driver the front stands before.
type Front struct {
	Name string
	// Command and Args are the program. The path of its one directory of state follows
	// them.
	Command string
	Args    []string
	State   string
	// Memory, in bytes, and CPUs are what it may use in a sandbox or a container, where
	// the entry does not say.
	Memory int64
	CPUs   int
	// Image is the one of a container.
	Image string
	// Paths is the setting that is a list of paths, which are relative to the config's
	// folder.
	Paths string
	// Program is the setting that names another program than Command; empty for none.
	Program string
	// Packages is the setting with packages from PyPI that the program runs with; empty
	// for none.
	Packages string
	// Tool is the name by which a tool is listed, of any name by which it may be called;
	// nil where each tool has one.
	Tool func(settings map[string]any, name string) string
	// Check says what is wrong with settings, as "settings.KEY must be ...".
	Check func(settings map[string]any) error
}

var fronts []Front

// RegisterFront adds fronts to what an entry may be. It is called before a config is
// read.
func RegisterFront(f ...Front) {
	fronts = append(fronts, f...)
	serverTable[slices.Index(serverTable.Names(), "builtin")] = builtinKey()
}

// builtinKey is the key that names a server inside Tine.
func builtinKey() Key[Server] {
	names, words := slices.Clone(builtins), []string{}
	for _, f := range fronts {
		names = append(names, f.Name)
	}
	for _, name := range names {
		word := "`" + name + "`"
		if slices.Contains(controls, name) || !slices.Contains(builtins, name) {
			word = fmt.Sprintf("[%s](servers/%s.md)", word, name)
		}
		words = append(words, word)
	}
	return Put("builtin", func(s *Server) *string { return &s.Builtin }, OneOf(names...).As(strings.Join(words, ", ")), "a server inside Tine")
}

// ToolName is the name by which the server lists the tool that is called by a name. What
// may be called is decided by that one.
func (s *Server) ToolName(name string) string {
	if s.Front == "" {
		return name
	}
	i := slices.IndexFunc(fronts, func(f Front) bool { return f.Name == s.Front })
	if i < 0 || fronts[i].Tool == nil {
		return name
	}
	return fronts[i].Tool(s.Settings, name)
}

// bodies are the drivers that may run a body.
var bodies = []string{"sandbox", "docker", "process"}

// front reads the entry of a built-in server that has a body as that of its program.
func (d *decoder) front(o Object, s *Server) Object {
	n := o.n.Get("builtin")
	if n == nil || !n.Scalar() || o.Has("command", "args", "url", "preset", "remote") != "" {
		return o
	}
	i := slices.IndexFunc(fronts, func(f Front) bool { return f.Name == n.Text })
	if i < 0 {
		return o
	}
	f := &fronts[i]
	driver := bodies[0]
	if k := kindOf(driver); k != nil && k.Unfit != nil && k.Unfit(d.opts.OS) != "" {
		driver = bodies[1] // Windows and macOS have no sandbox
	}
	way := o.Has("docker")
	if o.walled() {
		way = "sandbox"
	} else if sandbox := o.n.Get("sandbox"); sandbox != nil && sandbox.Scalar() && way == "" {
		way = "process" // sandbox: false
	}
	if way != "" {
		driver = way
	}
	if said := o.n.Get("driver"); said != nil && said.Scalar() && said.Text != driver {
		if way != "" || !slices.Contains(bodies, said.Text) {
			return o // which can't be, as is said of any entry
		}
		driver = said.Text
	}
	s.Front = f.Name
	below := MapNode()
	command, args := d.startOf(f, o.n.Get("settings"), driver == "docker")
	limits := MapNode()
	limits.Set("memory", SizeNode(f.Memory))
	limits.Set("cpus", IntNode(int64(f.CPUs)))
	if driver == "docker" {
		at := "/" + f.State
		limits.Set("image", StringNode(f.Image))
		limits.Set("command", ListNode(append(append([]string{command}, args...), at)...))
		limits.Set("state", ListNode(at))
		below.Set("docker", limits)
	} else {
		below.Set("command", StringNode(command))
		below.Set("args", ListNode(append(args, "${state."+f.State+"}")...))
		below.Set("state", ListNode(f.State))
		if driver == "sandbox" {
			below.Set("sandbox", limits)
		} else {
			key := "driver"
			if way == driver {
				key = "sandbox"
			}
			d.warn(o.KeyPos(key), "%s.%s: code of a language model will run on this machine without isolation; remove %s", o.Path, key, key)
		}
	}
	below.stand(n.Pos)
	d.resolve(below, o.Path)
	o.n = o.n.over(below).without("builtin")
	return o
}

// startOf is the program of a front with its arguments. With packages it is started by
// uvx, whose words any driver but Docker's understands; an image has its own.
func (d *decoder) startOf(f *Front, settings *Node, image bool) (command string, args []string) {
	command, args = f.Command, slices.Clone(f.Args)
	if settings == nil {
		return command, args
	}
	program := settings.Get(f.Program)
	if program != nil && program.Scalar() {
		command = program.Text
	}
	packages := settings.Get(f.Packages)
	if image || packages == nil || len(packages.Items) == 0 {
		return command, args
	}
	var words []string
	if program != nil {
		if strings.ContainsAny(command, `/\`) {
			command = d.res.paths.resolve(command)
		}
		words = append(words, "--python", command)
	}
	for i, p := range packages.Items {
		option := "--with"
		if i == 0 {
			option = "--from"
		}
		words = append(words, option, p.Text)
	}
	return "uvx", slices.Concat(words, []string{"python"}, args)
}

// checkFront says what is wrong with the settings of a front.
func (d *decoder) checkFront(o Object, n *Node, s *Server, f *Front) {
	if o.n.Get("docker") != nil && len(n.Get(f.Packages).items()) > 0 {
		o.Wrong("settings."+f.Packages, n.Get(f.Packages), "a container has the packages of its image; set docker.image to one that has them, or remove docker")
	}
	for _, item := range n.Get(f.Paths).items() {
		if item.Shape != ShapeString {
			continue
		}
		path := d.res.paths.resolve(item.Text)
		if place, keys := d.keyPlace(path); keys {
			o.Wrong("settings."+f.Paths, item, "%s is a place of keys (%s), of which nothing is ever read; remove it", path, place)
		}
	}
	d.wrongSettings(o, n, f.Check(s.Settings))
}

// wrongSettings reports what is wrong with settings where it stands, if the error says that;
// nil for nothing.
func (d *decoder) wrongSettings(o Object, n *Node, err error) {
	if err == nil {
		return
	}
	at, text := n, err.Error()
	if rest, ok := strings.CutPrefix(text, "settings."); ok {
		key, _, _ := strings.Cut(rest, " ")
		key = strings.TrimSuffix(key, ":")
		if found := n.Get(strings.SplitN(key, ".", 2)[0]); found != nil {
			at = found
		}
		o.d.fail(at.Pos, "%s.%s", o.Path, text)
		return
	}
	o.Wrong("settings", at, "%s", text)
}

// items are those of a list; none for no node.
func (n *Node) items() []*Node {
	if n == nil {
		return nil
	}
	return n.Items
}

// without is a map without a key.
func (n *Node) without(key string) *Node {
	out := *n
	out.Pairs = slices.DeleteFunc(slices.Clone(n.Pairs), func(p Pair) bool { return p.Key == key })
	return &out
}
