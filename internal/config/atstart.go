package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Placeholders that are filled in when an instance starts, by what stands
// between their braces. They stay in the text until then.
const (
	keptWorkspace = "workspace"
	keptState     = "state."
)

// atStartPattern is what drivers look for, whatever the name.
var atStartPattern = regexp.MustCompile(`\$\{(workspace|state\.[^}]*)\}`)

// onlyKept reports whether a driver finds in the text of n the placeholders that
// were written there, and none that is text by chance.
func (n *Node) onlyKept() bool { return slices.Equal(AtStart(n.Text), n.Kept) }

// AtStart are the placeholders in a text that a driver fills in when an instance starts,
// without their braces: workspace and state.NAME.
func AtStart(text string) []string {
	var names []string
	for _, match := range atStartPattern.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	return names
}

// readKept reads a placeholder of this kind; ok is false for one of another.
func readKept(whole, body string) (p part, ok bool, err error) {
	p = part{text: whole, kind: "kept", name: body}
	if name, ok := strings.CutPrefix(body, keptState); ok {
		if !stateName.MatchString(name) {
			err = badPlaceholder("%s: %q can't name a directory of state; use 1 to 32 of the characters a-z, 0-9, _ and -, or write $${ for a literal ${", Clip(whole), Clip(name))
		}
		return p, true, err
	}
	if strings.HasPrefix(body, keptWorkspace+":-") {
		return p, true, badPlaceholder("%s: ${workspace} is a session's directory and needs no default; write ${env:%s} for a variable of that name", Clip(whole), Clip(body))
	}
	return p, body == keptWorkspace, nil
}

// keptIn names the placeholders of this kind in a string before it is resolved.
func keptIn(s string) []string {
	if !strings.Contains(s, "${"+keptWorkspace+"}") && !strings.Contains(s, "${"+keptState) {
		return nil
	}
	parts, err := splitPlaceholders(s)
	if err != nil {
		return nil // resolve has reported it
	}
	var names []string
	for _, p := range parts {
		if p.kind == "kept" {
			names = append(names, p.name)
		}
	}
	return names
}

// eachText calls f for every string below n, with its path.
func (n *Node) eachText(path string, f func(n *Node, path string)) {
	if n.Shape == ShapeString {
		f(n, path)
	}
	for i, item := range n.Items {
		item.eachText(fmt.Sprintf("%s[%d]", path, i), f)
	}
	for _, p := range n.Pairs {
		p.Value.eachText(join(path, p.Key), f)
	}
}

// notAtStart complains about placeholders that would never be filled in.
func (d *decoder) notAtStart(n *Node, path string) {
	n.eachText(path, func(n *Node, path string) {
		if len(n.Kept) > 0 {
			d.fail(n.Pos, "%s: ${%s} is known only in args, env and cwd of a server, as there is none before one starts", path, n.Kept[0])
		}
	})
}
