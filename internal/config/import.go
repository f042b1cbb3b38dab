package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// Import writes a tine.yaml from another program's config: any that Load reads,
// and RewardKit's. What Tine has no key for stands in comments. Warnings name
// that, and every secret that should not stay in a file.
func Import(data []byte, path string) (yaml []byte, warnings []string, err error) {
	d := newDecoder(Options{Path: path})
	t, err := readTree(data, path)
	if err != nil {
		return nil, nil, d.unreadable(err)
	}
	w := &importer{decoder: d, root: MapNode(), inputs: map[string]string{}}
	switch f := detect(t); f {
	case formatTine:
		if t.root.Get("servers") != nil {
			return nil, nil, fmt.Errorf("%s: this is a tine.yaml already; use it as it is", d.file)
		}
		return nil, nil, fmt.Errorf("%s: no servers found; want mcpServers, servers or backends", d.file)
	case formatRewardKit:
		d.duplicates(t)
		w.importRewardKit(t.root)
	default:
		w.readInputs(t.root)
		for _, e := range d.entries(t, f) {
			w.translateText(e.n, e.id)
			w.add(e, nil)
		}
	}
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	out := w.write(path)
	// What was written must be readable, whatever was in the source.
	if _, err := Parse(out, importOptions()); err != nil {
		return nil, nil, fmt.Errorf("import %s: the result does not load: %w", d.file, err)
	}
	return out, d.boundedWarnings(), nil
}

// importOptions see nothing of this machine: what a variable holds here does
// not decide what is imported.
func importOptions() Options {
	return Options{
		Home:     string(filepath.Separator),
		Getenv:   func(string) (string, bool) { return "", false },
		ReadFile: func(string) ([]byte, error) { return nil, errors.New("not read by import") },
	}
}

// importer collects a tine.yaml.
type importer struct {
	*decoder
	root    *Node // the keys above servers
	servers []Pair
	after   []string          // comments about servers that could not be written
	inputs  map[string]string // descriptions of VS Code's inputs
}

// add takes an entry over, or its remains as a comment when it can't be used.
func (w *importer) add(e entry, notes []string) {
	if len(e.left) > 0 {
		notes = append(notes, "not imported, as Tine has no key for it: "+strings.Join(e.left, ", "))
	}
	why := e.broken
	if why == "" {
		why = w.reject(e)
	}
	if why != "" {
		w.warn(e.pos, "server %q is not imported: %s", e.id, why)
		w.after = append(w.after, fmt.Sprintf("%s is not imported: %s", e.id, why))
		w.after = append(w.after, notes...)
		return
	}
	w.inlineSecrets(e)
	if e.id != e.name && oneLine(e.name) != "" && e.n.Get("title") == nil {
		title := StringNode(strings.ReplaceAll(oneLine(e.name), "${", "$${"))
		e.n.Pairs = append([]Pair{{Key: "title", Value: title}}, e.n.Pairs...)
	}
	w.servers = append(w.servers, Pair{Key: e.id, Value: e.n, comment: notes})
}

// reject says why an entry would not load.
func (w *importer) reject(e entry) string {
	d := newDecoder(importOptions())
	trial := e.n.clone()
	d.resolve(trial, e.id)
	d.server(e.id, trial, e.pos, e.id)
	if len(d.problems) == 0 {
		return ""
	}
	return strings.TrimPrefix(d.problems[0].Message, e.id+": ")
}

func (n *Node) clone() *Node {
	c := *n
	c.Items, c.Pairs = nil, nil
	for _, item := range n.Items {
		c.Items = append(c.Items, item.clone())
	}
	for _, p := range n.Pairs {
		p.Value = p.Value.clone()
		c.Pairs = append(c.Pairs, p)
	}
	return &c
}

func (w *importer) readInputs(root *Node) {
	inputs := root.Get("inputs")
	if m := root.Get("mcp"); inputs == nil && m != nil {
		inputs = m.Get("inputs")
	}
	if inputs == nil {
		return
	}
	for _, in := range inputs.Items {
		id, about := in.Get("id"), in.Get("description")
		if id != nil && about != nil && about.Shape == ShapeString {
			w.inputs[id.Text] = about.Text
		}
	}
}

// translateText makes every string below n mean the same in tine.yaml: what an
// editor would ask for becomes a variable, and what is no placeholder of ours
// stays text.
func (w *importer) translateText(n *Node, id string) {
	if n == nil {
		return
	}
	for _, item := range n.Items {
		w.translateText(item, id)
	}
	for _, p := range n.Pairs {
		w.translateText(p.Value, id)
	}
	if n.Shape != ShapeString || !strings.Contains(n.Text, "${") {
		return
	}
	parts, err := splitPlaceholders(n.Text)
	if err != nil {
		n.Text = strings.ReplaceAll(n.Text, "${", "$${")
		w.warn(n.Pos, "server %q: %v; kept as plain text", id, err)
		return
	}
	var b strings.Builder
	for _, p := range parts {
		switch p.kind {
		case "":
			b.WriteString(strings.ReplaceAll(p.text, "${", "$${"))
		case "input":
			name := variableName(p.name)
			about := ""
			if s := w.inputs[p.name]; s != "" {
				about = " (" + Clip(oneLine(s)) + ")"
			}
			w.warn(n.Pos, "server %q: input %s is read from variable %s now%s", id, p.name, name, about)
			b.WriteString("${" + name + "}")
		case "kept":
			w.warn(n.Pos, "server %q: %s is a directory of the session now; write ${env:%s} for a variable of that name", id, p.text, p.name)
			b.WriteString(p.text)
		case "folder":
			if strings.HasPrefix(p.name, "workspace") {
				w.warn(n.Pos, "server %q: %s is the folder of tine.yaml now", id, p.text)
			}
			b.WriteString(p.text)
		default:
			b.WriteString(p.text)
		}
	}
	n.Text = b.String()
}

var notInVariable = regexp.MustCompile(`[^A-Z0-9]+`)

// variableName makes a name for an environment variable.
func variableName(s string) string {
	name := strings.Trim(notInVariable.ReplaceAllString(strings.ToUpper(s), "_"), "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "TINE_" + name
	}
	return strings.TrimRight(name, "_")
}

// importRewardKit takes over a RewardKit config, which has no placeholders.
// It is loaded first, as it is: one that can't be served can't be imported.
func (w *importer) importRewardKit(root *Node) {
	opts := importOptions()
	opts.Path = w.opts.Path
	trial := newDecoder(opts)
	trial.rewardKit(root.clone(), bare(0))
	if w.problems = append(w.problems, trial.problems...); len(w.problems) > 0 {
		return
	}
	f := w.rewardKitFile(root)
	w.root = f.top
	w.root.escape()
	for _, e := range f.entries {
		e.n.escape()
		w.add(e, nil)
	}
}

// escape makes every string below n mean itself.
func (n *Node) escape() {
	if n.Shape == ShapeString {
		n.Text = strings.ReplaceAll(n.Text, "${", "$${")
	}
	for _, item := range n.Items {
		item.escape()
	}
	for _, p := range n.Pairs {
		p.Value.escape()
	}
}

// inlineSecrets warns about every secret that stands in an entry as it is.
func (w *importer) inlineSecrets(e entry) {
	found := func(n *Node, where, variable string) {
		w.warn(n.Pos, "server %q: %s holds a secret in plain text; write ${%s} instead and set that variable", e.id, where, variable)
	}
	literal := func(n *Node) bool {
		return n.Scalar() && n.Text != "" && !strings.Contains(strings.ReplaceAll(n.Text, "$${", ""), "${")
	}
	if env := e.n.Get("env"); env != nil {
		for _, p := range env.Pairs {
			if literal(p.Value) && (secretName(p.Key) || shownText(p.Value.Text) != p.Value.Text) {
				found(p.Value, "env."+oneLine(p.Key), variableName(p.Key))
			}
		}
	}
	if headers := e.n.Get("headers"); headers != nil {
		for _, p := range headers.Pairs {
			if literal(p.Value) && (secretName(p.Key) || shownText(p.Value.Text) != p.Value.Text) {
				found(p.Value, "headers."+oneLine(p.Key), variableName(e.id+"_"+p.Key))
			}
		}
	}
	if u := e.n.Get("url"); u != nil && literal(u) && shownText(u.Text) != u.Text {
		found(u, "url", variableName(e.id+"_URL"))
	}
	name, n := e.id+"_SECRET", 1
	line := func(list *Node, where string) {
		if list == nil {
			return
		}
		var args []string
		for _, a := range list.Items {
			args = append(args, a.Text)
		}
		for i, shown := range ShownLine(args, "", nil) {
			if shown != args[i] && literal(list.Items[i]) {
				found(list.Items[i], fmt.Sprintf("%s[%d]", where, i), variableName(name))
				n++
				name = fmt.Sprintf("%s_SECRET_%d", e.id, n)
			}
		}
	}
	line(e.n.Get("args"), "args")
	if c := e.n.Get("docker"); c != nil {
		line(c.Get("command"), "docker.command")
		line(c.Get("run_args"), "docker.run_args")
	}
}

// write puts the file together.
func (w *importer) write(path string) []byte {
	var b strings.Builder
	head := "Imported by tine config import"
	if path != "" {
		head += " from " + filepath.Base(path)
	}
	writeComment(&b, []string{head + ".", "Check it with: tine config check"}, "")
	b.WriteString("\n")
	if len(w.root.Pairs) > 0 {
		writeYAML(&b, w.root, 0)
		b.WriteString("\n")
	}
	if len(w.servers) == 0 {
		b.WriteString("servers: {}\n")
	} else {
		b.WriteString("servers:\n")
	}
	for i, p := range w.servers {
		if i > 0 {
			b.WriteString("\n")
		}
		writeYAML(&b, MapNode(p), 1)
	}
	if len(w.after) > 0 {
		b.WriteString("\n")
		writeComment(&b, w.after, "  ")
	}
	return []byte(b.String())
}
