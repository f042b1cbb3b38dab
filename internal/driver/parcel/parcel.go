// Package parcel is the form of an exported state of files: a tar stream that
// begins with a head, which says what it is, and ends with an end, without which
// it was cut off. What is between them is the driver's.
package parcel

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Form tells parcels apart.
type Form struct {
	Name    string // of the entries that are the head and the end, without what follows the dot
	Format  string // that the head says
	Version int
	What    string // such as "a program's state", for errors
}

// maxText bounds the head and the end.
const maxText = 64 << 10

type label struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
}

type tail struct {
	Entries int `json:"entries"`
}

func (f Form) head() string { return f.Name + ".json" }
func (f Form) end() string  { return f.Name + ".end" }

// A Writer writes a parcel.
type Writer struct {
	form    Form
	ctx     context.Context
	tar     *tar.Writer
	entries int
}

// Write begins a parcel. The head is an object that has the keys format and
// version among others; they are the form's.
func (f Form) Write(ctx context.Context, to io.Writer, head any) (*Writer, error) {
	w := &Writer{form: f, ctx: ctx, tar: tar.NewWriter(to)}
	return w, w.text(f.head(), head)
}

func (w *Writer) text(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(b)), Mode: 0o600, ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err = w.tar.Write(b)
	return err
}

// Entry begins an entry, whose content is written afterwards.
func (w *Writer) Entry(h *tar.Header) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	w.entries++
	return w.tar.WriteHeader(h)
}

// Write writes content of the entry.
func (w *Writer) Write(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.tar.Write(b)
}

// Close writes the end.
func (w *Writer) Close() error {
	if err := w.text(w.form.end(), tail{w.entries}); err != nil {
		return err
	}
	return w.tar.Close()
}

// A Reader reads a parcel, which is not trusted.
type Reader struct {
	form  Form
	in    io.Reader
	tar   *tar.Reader
	bytes int64 // that may be in it, at most
	files int
	buf   []byte
	Size  int64 // of what was taken so far
}

// Read begins with a parcel that has at most so many bytes in at most so many
// files, and fills the head in.
func (f Form) Read(ctx context.Context, from io.Reader, bytes int64, files int, head any) (*Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := bounded{ctx, from}
	r := &Reader{form: f, in: in, tar: tar.NewReader(in), bytes: bytes, files: files}
	h, err := r.tar.Next()
	if err != nil || h.Name != f.head() {
		return nil, fmt.Errorf("it is not a snapshot of %s", f.What)
	}
	var raw json.RawMessage
	if err := r.text(h, &raw); err != nil {
		return nil, err
	}
	var l label
	switch err := json.Unmarshal(raw, &l); {
	case err != nil:
		return nil, fmt.Errorf("entry %q can't be read: %w", h.Name, err)
	case l.Format != f.Format:
		return nil, fmt.Errorf("it is not a snapshot of %s", f.What)
	case l.Version != f.Version:
		return nil, fmt.Errorf("it is of version %d, and this Tine reads %d", l.Version, f.Version)
	}
	if err := json.Unmarshal(raw, head); err != nil {
		return nil, fmt.Errorf("entry %q can't be read: %w", h.Name, err)
	}
	return r, nil
}

// text reads a small JSON entry.
func (r *Reader) text(h *tar.Header, v any) error {
	if h.Typeflag != tar.TypeReg || h.Size > maxText {
		return fmt.Errorf("entry %q is not what it should be", h.Name)
	}
	b, err := io.ReadAll(r.tar)
	if err != nil {
		return fmt.Errorf("it can't be read: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("entry %q can't be read: %w", h.Name, err)
	}
	return nil
}

// Each does something with every entry, up to the end of the parcel, behind which
// there is nothing. The content is read with Copy.
func (r *Reader) Each(do func(h *tar.Header) error) error {
	for n := 0; ; n++ {
		h, err := r.tar.Next()
		switch {
		case errors.Is(err, io.EOF):
			return errors.New("it was cut off: its end is missing")
		case err != nil:
			return fmt.Errorf("it can't be read: %w", err)
		case h.Name == r.form.end():
			return r.finish(h, n)
		case n == r.files:
			return fmt.Errorf("it has more than %d files, which is the limit", r.files)
		case h.Size < 0 || h.Size > r.bytes-r.Size:
			return fmt.Errorf("entry %.200q: it has more than %d bytes, which is the limit", h.Name, r.bytes)
		}
		if err := do(h); err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// Copy copies the content of the entry.
func (r *Reader) Copy(to io.Writer) error {
	if r.buf == nil {
		r.buf = make([]byte, 64<<10)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, r.tar, r.buf)
	r.Size += n
	return err
}

func (r *Reader) finish(h *tar.Header, entries int) error {
	var t tail
	if err := r.text(h, &t); err != nil {
		return err
	}
	if t.Entries != entries {
		return fmt.Errorf("it has %d entries and says %d", entries, t.Entries)
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		return errors.New("something follows its end")
	}
	if n, err := r.in.Read(make([]byte, 1)); n > 0 || err == nil {
		return errors.New("something follows its end")
	}
	return nil
}

// bounded is a reader that fails when its context has ended.
type bounded struct {
	ctx context.Context
	r   io.Reader
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}
