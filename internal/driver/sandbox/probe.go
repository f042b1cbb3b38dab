package sandbox

// A Finding is what Probe found of one thing that sandboxes need or use.
type Finding struct {
	Name   string // such as namespaces
	OK     bool
	Needed bool // without it there are no sandboxes
	Detail string
	Mend   string
}
