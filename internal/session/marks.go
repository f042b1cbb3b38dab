package session

import (
	"path/filepath"
	"strings"
)

// keeperOf is whose a state is, from its mark. A mark that disagrees with the state
// has changed by itself: the layers that the state needs would seem unused, and be
// removed. It is written anew where the session's servers say whose the state is.
// Where they don't, nothing that seems unused is removed.
func (r *Registry) keeperOf(h *home, name string) string {
	by := markedBy(h.whole[name])
	if by == workspaceState || r.o.Drivers[by] != nil {
		return by
	}
	right, file := r.driverOf(h.id, name), filepath.Join(h.dir, name+wholeMark)
	if right == by { // the driver is not here
		r.unsure = true
		return by
	}
	if right == "" {
		r.unsure = true
		r.o.Log.Error("a state can't be used: its mark, which says whose it is, was changed; put the file back from a backup", "file", file, "says", by)
		return by
	}
	r.o.Log.Error("the mark of a state was changed, and is written anew as the servers of its session say", "file", file, "says", by, "right", right)
	_, rest, _ := strings.Cut(h.whole[name], "\n")
	if err := writeMark(filepath.Join(h.dir, name), strings.TrimSuffix(right+"\n"+rest, "\n")); err != nil {
		r.o.Log.Warn("a mark is not written anew", "file", file, "err", err)
	}
	return right
}

// driverOf is the driver that a state in a session's home must be of; empty where
// that is not known.
func (r *Registry) driverOf(session, name string) string {
	server := stateOf(name)
	if strings.HasPrefix(server, workspaceState) {
		return workspaceState
	}
	cat := r.Catalog()
	if session != sharedHome {
		s := r.sessions[session]
		if s == nil {
			return ""
		}
		cat = s.Catalog()
	}
	if e := cat.Entry(server); e != nil {
		return e.Driver
	}
	return ""
}
