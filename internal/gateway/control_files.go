package gateway

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path"
	"reflect"
	"strconv"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
)

const (
	mediaTar = "application/x-tar"
	// headerMode has the permissions of a file, in octal.
	headerMode = "X-Tine-Mode"
)

type putQuery struct {
	Mode string `query:"mode" doc:"permissions of the file in octal; default 0644"`
}

// putFiles copies a file into a session, or with the type of a tar a folder.
func (g *Gateway) putFiles(a *ask, q putQuery) (api.Put, error) {
	mode, err := strconv.ParseInt(q.Mode, 8, 32)
	if q.Mode == "" {
		mode, err = 0o644, nil
	}
	if err != nil || mode < 0 || mode > 0o777 {
		return api.Put{}, invalid("mode must be permissions in octal, such as 0644; %q is not", clip(q.Mode))
	}
	if e := g.enter(a.who, 1); e != nil {
		return api.Put{}, e
	}
	defer g.leave(a.who, 1)
	ctx, served := g.whileServing(a.ctx())
	defer served()
	most := control.MaxCopy()
	if a.r.ContentLength > most+most/8 {
		return api.Put{}, bodyTooLarge(most)
	}
	in := &upload{r: http.MaxBytesReader(a.w, a.r.Body, most+most/8), ctl: http.NewResponseController(a.w)}
	place, at := a.args["place"], a.args["path"]
	var done api.Put
	if media, _, _ := mime.ParseMediaType(a.r.Header.Get("Content-Type")); media == mediaTar {
		done, err = g.services.Sessions.PutFiles(ctx, a.who, a.args["session"], place, at, in)
	} else {
		size, content, forget, spoolErr := sizedBody(a.r.ContentLength, in)
		if err = spoolErr; err == nil {
			done, err = g.services.Sessions.PutFile(ctx, a.who, a.args["session"], place, at, mode, size, content)
			forget()
		}
	}
	switch {
	case in.tooLarge:
		return api.Put{}, bodyTooLarge(most)
	case in.stalled:
		return api.Put{}, tooSlow(fmt.Sprintf("nothing of the file arrived for %d seconds, which is how long an upload may pause", int(uploadPause.Seconds())))
	case err == nil:
		wasRead(a.w)
	}
	return done, err
}

// sizedBody is a body with its size, which an archive says first: one whose size is not
// known is stored meanwhile.
func sizedBody(size int64, in io.Reader) (int64, io.Reader, func(), error) {
	if size >= 0 {
		return size, in, func() {}, nil
	}
	f, err := os.CreateTemp("", "tine-put-*")
	if err != nil {
		return 0, nil, nil, err
	}
	forget := func() {
		f.Close()
		os.Remove(f.Name())
	}
	if size, err = io.Copy(f, in); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		forget()
		return 0, nil, nil, err
	}
	return size, f, forget, nil
}

type filesQuery struct {
	List     bool   `query:"list" doc:"list what is there, and copy nothing"`
	All      bool   `query:"all" doc:"with list: also what is in folders below"`
	Snapshot string `query:"snapshot" doc:"as this snapshot has it, by id or name; of the workspace alone"`
}

// fetched is a file, a folder as a tar, or a listing.
type fetched struct {
	list *api.FileList
	f    *control.Fetched
	name string
}

func (fetched) contents() []content {
	return []content{{media: mediaJSON, of: reflect.TypeFor[api.FileList]()}, {media: mediaBytes}, {media: mediaTar}}
}

func (f fetched) write(a *ask) error {
	if f.list != nil {
		writeJSON(a.w, http.StatusOK, f.list)
		return errAnswered
	}
	defer f.f.Abandon()
	if f.f.Dir {
		return writeStream(a, mediaTar, "", f.f.Write)
	}
	a.w.Header().Set(headerMode, fmt.Sprintf("%04o", f.f.Mode))
	a.w.Header().Set("Content-Length", strconv.FormatInt(f.f.Size, 10))
	return writeStream(a, mediaBytes, "", f.f.Write)
}

// getFiles copies a file or a folder out of a session, or lists it.
func (g *Gateway) getFiles(a *ask, q filesQuery) (fetched, error) {
	id, place, at := a.args["session"], a.args["place"], a.args["path"]
	if q.List {
		list, err := g.services.Sessions.ListFiles(a.ctx(), a.who, id, place, at, q.Snapshot, q.All)
		return fetched{list: &list}, err
	}
	if q.All {
		return fetched{}, invalid("all is for a listing; add list=1")
	}
	f, err := g.services.Sessions.GetFiles(a.ctx(), a.who, id, place, at, q.Snapshot)
	if err != nil {
		return fetched{}, err
	}
	return fetched{f: f, name: path.Base(at)}, nil
}

type diffQuery struct {
	From string `query:"from" doc:"the snapshot to compare with, by id or name"`
}

// diffSession tells what has become another since a snapshot.
func (g *Gateway) diffSession(a *ask, q diffQuery) (api.Diff, error) {
	return g.services.Sessions.Diff(a.ctx(), a.who, a.args["session"], q.From)
}

type stateQuery struct {
	Snapshot string `query:"snapshot" doc:"as this snapshot has it, by id or name"`
}

// stateLines are the items of a state, one a line.
type stateLines struct{ produce func(io.Writer) error }

func (stateLines) contents() []content {
	return []content{{media: mediaLines, of: reflect.TypeFor[api.StateItem]()}}
}

func (s stateLines) write(a *ask) error { return writeStream(a, mediaLines, "", s.produce) }

// readState tells what a built-in server remembers.
func (g *Gateway) readState(a *ask, q stateQuery) (stateLines, error) {
	return stateLines{func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return g.services.Sessions.ReadState(a.ctx(), a.who, a.args["session"], a.args["server"], q.Snapshot, func(it api.StateItem) error { return enc.Encode(it) })
	}}, nil
}
