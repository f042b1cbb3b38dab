package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tine-mcp/tine/api"
)

func newSessionCpCmd(c *cli) *cobra.Command {
	var recursive bool
	var snapshot string
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy files into a session or out of it",
		Long: `Copies a file, or with -r a folder, between this machine and a session. The side in
the session is ID:PLACE/PATH. PLACE is workspace, or a server of the session:

  workspace/a.txt     the workspace
  box/etc/hosts       a server in a sandbox or container: a path from its root
  notes/data/a.txt    a program without walls: a directory of its state, by name

A target that ends in a slash, or is a folder on this machine, keeps the name of the
source. A folder's contents go into the target, without FIFOs, sockets and devices,
which are named. Modes are kept, links stay links, and no link leads out of a place. A
file is replaced whole or not at all in a workspace and in a state; in a sandbox its
tar writes them, in a container the engine does. Of a folder whose copy breaks off,
the files before that are there.

Files that are copied in are in the journal. A fork waits for a copy. --snapshot reads
the workspace as a snapshot of the session has it. - is standard input or output, for
one file.

` + sessionIDs,
		Example: `  tine session cp task.md 3f9a:workspace/task.md
  tine session cp -r tests 3f9a:workspace/tests
  tine session cp 3f9a:box/tmp/out.log .
  tine session cp -r 3f9a:workspace/ result`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("%s wants a source and a target, one of them ID:PLACE/PATH; see %s --help", short(cmd), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from, fromIn := parseSessionPath(args[0])
			to, toIn := parseSessionPath(args[1])
			switch {
			case fromIn == toIn:
				return usagef("one of source and target must be in a session, as ID:PLACE/PATH, and the other on this machine")
			case toIn && snapshot != "":
				return usagef("--snapshot is for copies out of a session")
			case toIn:
				return c.copyIn(cmd.Context(), args[0], to, recursive)
			}
			return c.copyOut(cmd.Context(), from, args[1], snapshot, recursive)
		},
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "copy a folder with all that is in it")
	cmd.Flags().StringVar(&snapshot, "snapshot", "", "read the workspace as this snapshot has it")
	return cmd
}

// sessionPath is a path in a session.
type sessionPath struct {
	session, place, path string
	folder               bool // it ends in a slash
}

func (r sessionPath) String() string { return r.session + ":" + r.place + "/" + r.path }

// parseSessionPath reads ID:PLACE/PATH. A path of this machine with a colon in it begins with a
// dot or a slash.
func parseSessionPath(text string) (sessionPath, bool) {
	session, rest, ok := strings.Cut(text, ":")
	if !ok || session == "" || strings.ContainsAny(session, `/\.`) || len(session) == 1 {
		return sessionPath{}, false
	}
	place, at, _ := strings.Cut(strings.TrimPrefix(rest, "/"), "/")
	if place == "" {
		return sessionPath{}, false
	}
	return sessionPath{session: session, place: place, path: strings.Trim(at, "/"), folder: at == "" || strings.HasSuffix(at, "/")}, true
}

func (c *cli) copyIn(ctx context.Context, from string, to sessionPath, recursive bool) error {
	g, id, err := c.session(ctx, to.session)
	if err != nil {
		return err
	}
	var (
		done    *api.Put
		leftOut []string
	)
	if from == "-" {
		if to.folder {
			return usagef("a file from standard input has no name; name it in %s", to)
		}
		done, err = g.PutFile(ctx, id, to.place, to.path, 0o644, c.stdin)
		return c.copied(done, nil, g.explain(mendSession(err)))
	}
	info, err := os.Stat(from)
	if err != nil {
		return usagef("%w", err)
	}
	switch {
	case info.IsDir() && !recursive:
		return usagef("%s is a folder; add -r", from)
	case info.IsDir():
		in, out := io.Pipe()
		packed := make(chan error, 1)
		go func() {
			var err error
			leftOut, err = packFolder(from, out)
			out.CloseWithError(err)
			packed <- err
		}()
		done, err = g.PutTar(ctx, id, to.place, to.path, in)
		in.CloseWithError(io.ErrClosedPipe)
		if e := <-packed; e != nil && !errors.Is(e, io.ErrClosedPipe) {
			err = fmt.Errorf("the copy broke off, and files before that are in %s: %w", to, e)
		}
	case !info.Mode().IsRegular():
		return usagef("%s is neither a file nor a folder", from)
	default:
		f, openErr := os.Open(from)
		if openErr != nil {
			return openErr
		}
		defer f.Close()
		at := to.path
		if to.folder {
			at = path.Join(to.path, filepath.Base(from))
		}
		done, err = g.PutFile(ctx, id, to.place, at, uint32(info.Mode().Perm()), f)
	}
	return c.copied(done, leftOut, g.explain(mendSession(err)))
}

// copied says how much was copied, and the paths that were left out.
func (c *cli) copied(done *api.Put, leftOut []string, err error) error {
	for _, name := range leftOut {
		c.say("left out: %s is neither a file nor a folder nor a link", name)
	}
	if err != nil {
		return err
	}
	if c.flags.json {
		return c.printJSON(struct {
			*api.Put
			LeftOut []string `json:"left_out,omitempty"`
		}{done, leftOut})
	}
	c.say("%s, %d bytes.", count(int(done.Files), "file"), done.Bytes)
	return nil
}

// packFolder writes what is in a folder as a tar. It returns the paths that it left out.
func packFolder(dir string, w io.Writer) (leftOut []string, err error) {
	out := tar.NewWriter(w)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := root.Lstat(name)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime().Truncate(time.Second)}
		switch info.Mode().Type() {
		case fs.ModeDir:
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
		case fs.ModeSymlink:
			h.Typeflag = tar.TypeSymlink
			if h.Linkname, err = root.Readlink(name); err != nil {
				return err
			}
		case 0:
			h.Typeflag, h.Size = tar.TypeReg, info.Size()
		default:
			leftOut = append(leftOut, filepath.Join(dir, name))
			return nil
		}
		if err := out.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
			return err
		}
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if n, err := io.CopyN(out, f, h.Size); err != nil {
			return fmt.Errorf("%s changed while it was read, %d of %d bytes: %w", filepath.Join(dir, name), n, h.Size, err)
		}
		return nil
	})
	if err != nil {
		return leftOut, err
	}
	return leftOut, out.Close()
}

func (c *cli) copyOut(ctx context.Context, from sessionPath, to, snapshot string, recursive bool) error {
	g, id, err := c.session(ctx, from.session)
	if err != nil {
		return err
	}
	d, err := g.GetFiles(ctx, id, from.place, from.path, snapshot)
	if err != nil {
		return g.explain(mendSession(err))
	}
	defer d.Close()
	switch {
	case d.Dir && !recursive:
		return usagef("%s is a folder; add -r", from)
	case d.Dir && to == "-":
		return usagef("%s is a folder, and standard output takes a file", from)
	case d.Dir:
		done, leftOut, err := unpackFolder(d, to)
		for i, name := range leftOut {
			leftOut[i] = strings.TrimSuffix(from.String(), "/") + "/" + name
		}
		if err != nil && done.Files > 0 {
			err = fmt.Errorf("%w; in %s is what was copied before that, %s", err, to, count(int(done.Files), "file"))
		}
		return c.copied(done, leftOut, err)
	case to == "-":
		_, err := io.Copy(c.stdout, d)
		return err
	}
	if info, err := os.Stat(to); err == nil && info.IsDir() || strings.HasSuffix(to, string(filepath.Separator)) {
		to = filepath.Join(to, path.Base(from.path))
	}
	root, err := os.OpenRoot(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer root.Close()
	if err := writeWhole(root, filepath.Base(to), fs.FileMode(d.Mode), d); err != nil {
		return err
	}
	return c.copied(&api.Put{Files: 1, Bytes: max(d.Size, 0)}, nil, nil)
}

// writeWhole writes a file that is there whole or not at all.
func writeWhole(root *os.Root, name string, mode fs.FileMode, r io.Reader) (err error) {
	part := name + ".tine-part"
	_ = root.Remove(part)
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			root.Remove(part)
		}
	}()
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Chmod(mode.Perm()), f.Close())
	if err != nil {
		return err
	}
	return root.Rename(part, name)
}

// unpackFolder puts the files of a tar into a folder, and nothing outside of it. It returns
// the names that the gateway has left out.
func unpackFolder(r io.Reader, dir string) (done *api.Put, leftOut []string, err error) {
	done = new(api.Put)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return done, nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return done, nil, err
	}
	defer root.Close()
	type folder struct {
		name string
		mode fs.FileMode
	}
	var folders []folder
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return done, leftOut, fmt.Errorf("the copy broke off: %w", err)
		}
		name := filepath.FromSlash(strings.Trim(strings.TrimPrefix(h.Name, "./"), "/"))
		if name == "" {
			if leftOut, err = tarNotes(h); err != nil {
				return done, leftOut, fmt.Errorf("the copy broke off: %w", err)
			}
			continue
		}
		if !filepath.IsLocal(name) {
			return done, leftOut, fmt.Errorf("%q leads out of %s", h.Name, dir)
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return done, leftOut, err
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o755)
			folders = append(folders, folder{name, fs.FileMode(h.Mode).Perm()})
		case tar.TypeSymlink:
			_ = root.Remove(name)
			err = root.Symlink(h.Linkname, name)
		case tar.TypeReg:
			if err = writeWhole(root, name, fs.FileMode(h.Mode), in); errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("the copy broke off in %s: %w", name, err)
			}
		}
		if err != nil {
			return done, leftOut, err
		}
		done.Files++
		done.Bytes += h.Size
	}
	for i := len(folders) - 1; i >= 0; i-- {
		if err := root.Chmod(folders[i].name, folders[i].mode); err != nil {
			return done, leftOut, err
		}
	}
	return done, leftOut, nil
}

// tarNotes reads what the root of a folder says: what was left out, or why the copy breaks
// off.
func tarNotes(root *tar.Header) (leftOut []string, err error) {
	if text := root.PAXRecords[api.TarError]; text != "" {
		cause := new(api.Error)
		if err := json.Unmarshal([]byte(text), cause); err != nil {
			return nil, err
		}
		return nil, cause
	}
	if text := root.PAXRecords[api.TarLeftOut]; text != "" {
		err = json.Unmarshal([]byte(text), &leftOut)
	}
	return leftOut, err
}
