package gateway

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
)

type snapshotQuery struct {
	Owner string   `query:"owner" doc:"only snapshots of this principal"`
	Label []string `query:"label" doc:"only snapshots with this label, as key=value; all of them when repeated"`
	Auto  bool     `query:"auto" doc:"also those that were made by themselves, to rewind to"`
	Limit int64    `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After string   `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listSnapshots(a *ask, q snapshotQuery) (api.SnapshotList, error) {
	labels, err := readLabels(q.Label)
	if err != nil {
		return api.SnapshotList{}, err
	}
	return g.services.Snapshots.List(a.who, control.SnapshotFilter{
		Owner: q.Owner, Labels: labels, Auto: q.Auto, Page: control.Page{Limit: int(q.Limit), After: q.After},
	})
}

type sessionSnapshotQuery struct {
	Limit int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After string `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listSessionSnapshots(a *ask, q sessionSnapshotQuery) (api.SnapshotList, error) {
	return g.services.Snapshots.ListOf(a.ctx(), a.who, a.args["session"], control.Page{Limit: int(q.Limit), After: q.After})
}

func (g *Gateway) getSnapshot(a *ask, _ none) (api.Snapshot, error) {
	return g.services.Snapshots.Get(a.who, a.args["snapshot"])
}

func (g *Gateway) makeSnapshot(a *ask, in api.SnapshotRequest) (api.Snapshot, error) {
	r, err := a.request()
	if err != nil {
		return api.Snapshot{}, err
	}
	return g.services.Snapshots.Make(a.ctx(), r, a.args["session"], in)
}

func (g *Gateway) deleteSnapshot(a *ask, _ none) (none, error) {
	return none{}, g.services.Snapshots.Delete(a.ctx(), a.who, a.args["snapshot"])
}

func (g *Gateway) exportSnapshot(a *ask, _ none) (file, error) {
	s, write, err := g.services.Snapshots.Export(a.ctx(), a.who, a.args["snapshot"])
	return file{cmp.Or(s.Name, s.ID) + snapshotSuffix, write}, err
}

// snapshotSuffix ends the names of exported files.
const snapshotSuffix = ".tine"

type importQuery struct {
	Name string `query:"name" doc:"what the snapshot is called; default the name in the file, where that is free"`
}

// importSnapshot reads a file as it comes. It may be larger than any other
// request: what is left of what the principal's snapshots may have bounds it.
func (g *Gateway) importSnapshot(a *ask, q importQuery) (api.Snapshot, error) {
	r, err := a.request()
	if err != nil {
		return api.Snapshot{}, err
	}
	var in *upload
	var tooLarge error
	s, err := g.services.Snapshots.Import(a.ctx(), r, q.Name, func(left, most int64) (io.Reader, error) {
		body := a.r.Body
		if most > 0 && left > 0 { // with nothing left, the import says so
			tooLarge = &api.Error{
				Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge,
				Message: fmt.Sprintf("the file is larger than %d bytes, which is what is left of the %d that your snapshots may have; delete some, or have sessions.snapshots raised", left, most),
			}
			if a.r.ContentLength > left {
				return nil, tooLarge
			}
			body = http.MaxBytesReader(a.w, body, left)
		}
		in = &upload{r: body, ctl: http.NewResponseController(a.w)}
		return in, nil
	})
	switch {
	case in == nil: // nothing was read
	case in.tooLarge:
		return api.Snapshot{}, tooLarge
	case in.stalled:
		return api.Snapshot{}, tooSlow(fmt.Sprintf("nothing of the file arrived for %d seconds, which is how long an upload may pause", int(uploadPause.Seconds())))
	case err == nil:
		wasRead(a.w)
	}
	return s, err
}

// readLabels reads labels of a query.
func readLabels(labels []string) (map[string]string, error) {
	want := make(map[string]string, len(labels))
	for _, l := range labels {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, invalid("label must be key=value; %q is not", clip(l))
		}
		want[k] = v
	}
	return want, nil
}
