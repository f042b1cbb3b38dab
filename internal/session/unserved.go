package session

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// An Unserved is a session that is recorded as open and can't be used: something
// that it is made of was missing when the gateway started. What is left of it stays
// as it is.
type Unserved struct {
	Owner string
	Why   string
	Mend  string // for the gateway's operator: it names files
}

// Unserved says why an open session is not served; false for one that is, and for
// one that is not open.
func (r *Registry) Unserved(id string) (Unserved, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.unserved[id]
	return u, ok
}

// setAside leaves a session out of the served ones.
func (r *Registry) setAside(rec store.Session, why, mend string) {
	r.o.Log.Error("a session is not served: "+why+"; what is left of it stays as it is", "session", rec.ID, "mend", mend)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unserved[rec.ID] = Unserved{Owner: rec.Owner, Why: why, Mend: mend}
}

// withoutFolder sets a session aside whose folder is gone.
func (r *Registry) withoutFolder(rec store.Session) {
	restore := strings.TrimSpace("tine state restore " + r.o.StateFlag)
	r.setAside(rec, "its folder is gone, and all that it knew",
		fmt.Sprintf("put %s back from a backup and start the gateway again, or stop the gateway and run `%s`, which closes the session", r.home(rec.ID), restore))
}

// withoutServers sets a session aside whose servers are not known.
func (r *Registry) withoutServers(rec store.Session, err error) {
	why := catalog.ErrNotRecorded.Error()
	var c *catalog.RecordError
	if errors.As(err, &c) {
		why += ": " + c.Why
	}
	r.setAside(rec, why, fmt.Sprintf("put %s back from a backup and start the gateway again", catalog.File(r.o.States, rec.Catalog)))
}
