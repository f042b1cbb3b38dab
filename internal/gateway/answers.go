package gateway

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/wire"
)

// Answers that are not a value to be encoded.

// rawCall is an api.CallResponse whose result is written as the server sent
// it: the encoder would escape and compact it.
type rawCall struct {
	result []byte
	call   string // its id; empty for none
}

func (rawCall) contents() []content {
	return []content{{media: mediaJSON, of: reflect.TypeFor[api.CallResponse]()}, {media: mediaLines, of: reflect.TypeFor[api.CallEvent]()}}
}

func (c rawCall) write(a *ask) error {
	a.w.Header()["Content-Type"] = contentJSON
	out := c.appendMembers(append(make([]byte, 0, len(c.result)+64), '{'))
	return answered(send(a.w, append(out, "}\n"...)))
}

// appendMembers appends the members of the answer's object.
func (c rawCall) appendMembers(b []byte) []byte {
	b = append(append(b, `"result":`...), c.result...)
	if c.call != "" {
		b = wire.AppendQuote(append(b, `,"call":`...), c.call)
	}
	return b
}

// rawReplay is an api.Replay whose result is written as the server sent it.
type rawReplay struct {
	id     string
	result []byte
}

func (rawReplay) contents() []content {
	return []content{{media: mediaJSON, of: reflect.TypeFor[api.Replay]()}}
}

func (p rawReplay) write(a *ask) error {
	id, err := json.Marshal(p.id)
	if err != nil {
		return err
	}
	a.w.Header()["Content-Type"] = contentJSON
	out := append(append([]byte(`{"id":`), id...), `,"result":`...)
	return answered(send(a.w, append(append(out, p.result...), "}\n"...)))
}

// answered is nil or an error for which it is too late: the caller is gone.
func answered(err error) error {
	if err != nil {
		return errAnswered
	}
	return nil
}

// made is an answer with the status 201 where the request has made something, and 200 where
// that was there.
type made[T any] struct {
	value T
	isNew bool
}

func (made[T]) contents() []content {
	return []content{{media: mediaJSON, of: reflect.TypeFor[T]()}, {mediaJSON, reflect.TypeFor[T](), http.StatusCreated}}
}

func (m made[T]) write(a *ask) error {
	status := http.StatusOK
	if m.isNew {
		status = http.StatusCreated
	}
	writeJSON(a.w, status, m.value)
	return nil
}

// callPage is an api.CallList, or a stream of calls that was written already.
type callPage struct{ api.CallList }

func (callPage) contents() []content {
	return []content{{media: mediaJSON, of: reflect.TypeFor[api.CallList]()}, {media: mediaLines, of: reflect.TypeFor[api.Call]()}}
}

// lines is an answer of one JSON value a line, made while it is written.
type lines[T any] func(emit func(T) error) error

func (lines[T]) contents() []content { return []content{{media: mediaLines, of: reflect.TypeFor[T]()}} }

func (each lines[T]) write(a *ask) error {
	return writeStream(a, mediaLines, "", func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false) // texts of servers and callers stay as they are
		return each(func(v T) error { return enc.Encode(v) })
	})
}

// file is an answer of bytes, to be kept under a name.
type file struct {
	name    string
	produce func(io.Writer) error
}

func (file) contents() []content { return []content{{media: mediaBytes}} }

func (f file) write(a *ask) error { return writeStream(a, mediaBytes, f.name, f.produce) }

// writeStream answers with what produce writes. When it fails before anything was
// sent, the failure is the answer; after that the connection is broken off, so
// that a part is not taken for the whole.
func writeStream(a *ask, media, filename string, produce func(io.Writer) error) error {
	s := &stream{a: a, ctl: http.NewResponseController(a.w), media: media, filename: filename}
	buf := bufio.NewWriterSize(s, piece)
	err := produce(buf)
	if err == nil {
		err = buf.Flush()
	}
	switch {
	case err == nil:
		s.begin() // also of nothing at all
		return nil
	case s.begun:
		if media == mediaTar { // it ends with its cause
			_ = buf.Flush()
			_ = s.ctl.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// stream is an answer that begins with its first byte.
type stream struct {
	a        *ask
	ctl      *http.ResponseController
	media    string
	filename string
	begun    bool
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.a.w.Header()
	h.Set("Content-Type", s.media)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if s.filename != "" {
		h.Set("Content-Disposition", `attachment; filename="`+s.filename+`"`)
	}
	s.a.w.WriteHeader(http.StatusOK)
}

func (s *stream) Write(b []byte) (int, error) {
	s.begin()
	if err := sendPieces(s.a.w, s.ctl, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// uploadPause is how long an upload may pause.
const uploadPause = 30 * time.Second

// upload reads a body that may take as long as it keeps coming.
type upload struct {
	r        io.Reader
	ctl      *http.ResponseController
	tooLarge bool // the reader may hide why it failed
	stalled  bool
}

func (u *upload) Read(b []byte) (int, error) {
	_ = u.ctl.SetReadDeadline(time.Now().Add(uploadPause))
	n, err := u.r.Read(b)
	var big *http.MaxBytesError
	u.tooLarge = u.tooLarge || errors.As(err, &big)
	u.stalled = u.stalled || errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}
