package blueprint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// rule stands between the prompts of a blueprint and of its capabilities.
const rule = "\n\n---\n\n"

// mostCapabilities bounds those of one blueprint, with those that they mix in.
const mostCapabilities = 64

// capabilityTable are the keys of a capability.
var capabilityTable = config.Table[draft]{
	config.Put("name", func(d *draft) *string { return &d.Name }, config.Text("web").Unless("that of the file").Then(validName("a capability")), "the capability's name, which is that of its file or folder"),
	config.Put("description", func(d *draft) *string { return &d.Description }, line("Searches the web"), "what it is for"),
	config.Put("system_prompt", func(d *draft) *Text { return &d.SystemPrompt }, promptValue, "what joins the system prompt of the agent; may have placeholders"),
	config.Put("system_prompt_file", func(d *draft) *string { return &d.promptFile }, config.Text("prompt.md").As("path"), "a file with that, in the folder of the capability"),
	config.Put("mcp_servers", func(d *draft) **config.Node { return &d.own }, nodeValue, "what joins the servers of the agent; may have placeholders"),
	config.Put("capabilities", func(d *draft) *[]string { return &d.Capabilities }, names("[web]", "a capability"), "what it mixes in itself"),
	config.Put("type", func(d *draft) *string { return &d.kind }, config.OneOf("text", "mcp").Unless("none"), "says nothing; files of other programs have it"),
}

// mixIn adds to a blueprint what its capabilities have, each once.
func mixIn(b *Blueprint, find func(name string, r *report) (draft, bool), all func() []string, r *report) {
	m := mixer{find: find, all: all, r: r}
	prompts := []Text{b.SystemPrompt}
	for i, name := range b.Capabilities {
		at, ok := b.spots[fmt.Sprintf("capabilities[%d]", i)]
		if !ok {
			at = spot{file: b.Source, path: "capabilities"}
		}
		m.add(b, name, at, nil, &prompts)
	}
	b.SystemPrompt = joined(prompts)
	inlineNames(b, r)
}

type mixer struct {
	find func(name string, r *report) (draft, bool)
	all  func() []string
	r    *report
	done []string
}

func (m *mixer) add(b *Blueprint, name string, at spot, open []string, prompts *[]Text) {
	switch {
	case slices.Contains(open, name):
		m.r.add(at.problem("capabilities mix in each other in a circle: %s", strings.Join(append(open, name), ", ")))
		return
	case slices.Contains(m.done, name):
		return
	case len(m.done) == mostCapabilities:
		m.done = append(m.done, name)
		m.r.add(at.problem("more than %d capabilities", mostCapabilities))
		return
	case len(m.done) > mostCapabilities:
		return
	}
	m.done = append(m.done, name)
	d, ok := m.find(name, m.r)
	if !ok {
		mend := "; create capabilities/" + name + "/capability.yaml"
		if g := config.Nearest(name, m.all()); g != "" {
			mend = fmt.Sprintf("; did you mean %q?", g)
		}
		m.r.add(at.problem("there is no capability %q%s", config.Clip(name), mend))
		return
	}
	*prompts = append(*prompts, d.SystemPrompt)
	mixServers(b, d.Servers, m.r)
	for i, below := range d.Capabilities {
		spot := d.spots[fmt.Sprintf("capabilities[%d]", i)]
		m.add(b, below, spot, append(slices.Clone(open), name), prompts)
	}
}

// joined puts texts one below the other, with a rule between them.
func joined(texts []Text) Text {
	var all Text
	for _, t := range texts {
		if t.Empty() {
			continue
		}
		if !all.Empty() {
			all.parts = append(all.parts, part{text: rule})
		}
		all.parts = append(all.parts, t.parts...)
	}
	return all
}
