package config

// toolsTable are the keys of tools.
var toolsTable = Table[Tools]{
	Put("allow", func(t *Tools) *[]string { return &t.Allow }, Patterns(`["read_*"]`, "a tool's name", false).As("list of patterns").Then(noneAllowed), "only these are visible"),
	Put("deny", func(t *Tools) *[]string { return &t.Deny }, Patterns(`["write_*"]`, "a tool's name", false).As("list of patterns"), "these are hidden; wins over `allow`"),
	Put("describe", func(t *Tools) *map[string]string { return &t.Describe }, plainMap(`{name: "What it does"}`), "another description"),
	Put("rename", func(t *Tools) *map[string]string { return &t.Rename }, plainMap("{old_name: new_name}").Then(checkRename), "another name"),
}

// plainMap is a map of texts that is laid over the values of dst.
func plainMap(example string) Value[map[string]string] {
	v := TextMap(example)
	v.Read = func(o Object, key string, dst *map[string]string) bool {
		var given map[string]string
		ok := o.TextMap(key, &given, example)
		if ok {
			*dst = over(*dst, given)
		}
		return ok
	}
	v.Secrets = nil
	return v
}

func noneAllowed(t Object, key string, _ *[]string) {
	if n := t.Get(key); n.Shape == ShapeList {
		t.EmptyList(key, "an empty list would let nothing through; leave it out, or set enabled: false")
	}
}

// checkRename looks at the new names. Names that an entry gave already stay taken,
// unless they are given anew.
func checkRename(t Object, key string, all *map[string]string) {
	n := t.Get(key)
	taken := map[string]string{}
	for from, to := range *all {
		if n.Get(from) == nil {
			taken[to] = from
		}
	}
	for _, p := range n.Pairs {
		to := p.Value.Text
		switch {
		case p.Value.Missing || !p.Value.Scalar():
			continue
		case !ToolPattern.MatchString(to):
			t.Fail(p.Value.Pos, "%s.rename.%s: %s is not a tool name; use 1 to 128 letters, digits, dots, dashes and underscores", t.Path, p.Key, p.Value.Shown())
		case taken[to] != "":
			t.Fail(p.Value.Pos, "%s.rename: %s and %s would both be called %s; choose another name for one", t.Path, taken[to], p.Key, p.Value.Shown())
		}
		taken[to] = p.Key
	}
}
