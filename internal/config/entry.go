package config

// Entry checks a map of a document that is an entry of servers, which a session
// would have under the id as one of its own. Texts that are Missing count as right.
func (o Object) Entry(id string, n *Node, at Pos, path string, opts Options) {
	d := newDecoder(opts)
	d.file = o.d.file
	if err := checkID(id, d.separator); err != nil {
		d.fail(at, "%s: %v", path, err)
	}
	d.notInline(n, path)
	d.server(id, n, at, path)
	o.d.problems = append(o.d.problems, d.problems...)
	o.d.warnings = append(o.d.warnings, d.warnings...)
}
