package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	pathpkg "path"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
)

// hostPath is where the files of a volume are on this machine, where we may work
// on them.
func (e *engine) hostPath(ctx context.Context, volume string) (string, bool) {
	if !e.local() || os.Geteuid() != 0 {
		return "", false
	}
	res, err := e.cli.VolumeInspect(ctx, volume, client.VolumeInspectOptions{})
	if err != nil || res.Volume.Mountpoint == "" {
		return "", false
	}
	// Its name is random: what is there by that path is it, and not something of
	// the machine that a remote engine's path only looks like.
	st, err := os.Lstat(res.Volume.Mountpoint)
	if err != nil || !st.IsDir() || !strings.Contains(res.Volume.Mountpoint, volume) {
		return "", false
	}
	return res.Volume.Mountpoint, true
}

// copyVolume copies what is on a volume to an empty one, and returns how much it
// was. image is for a container that only holds the volumes.
func (e *engine) copyVolume(ctx context.Context, spec driver.Spec, image, from, to string, progress func(done, total int64)) (int64, error) {
	src, ok := e.hostPath(ctx, from)
	dst, ok2 := e.hostPath(ctx, to)
	if ok && ok2 {
		return cloneInto(ctx, dst, src, progress)
	}
	return e.copyThrough(ctx, spec, image, from, to, progress)
}

// copyThrough copies by the engine, through us.
func (e *engine) copyThrough(ctx context.Context, spec driver.Spec, image, from, to string, progress func(done, total int64)) (int64, error) {
	// Two of them: Podman allows no write to a container that is being read.
	src, remove, err := e.helper(ctx, spec, image, []mount.Mount{plainMount(from, placeFrom)})
	if err != nil {
		return 0, err
	}
	defer remove()
	dst, removeToo, err := e.helper(ctx, spec, image, []mount.Mount{plainMount(to, placeTo)})
	if err != nil {
		return 0, err
	}
	defer removeToo()
	n := &counter{ctx: ctx, progress: progress}
	err = e.pump(ctx, src, placeFrom, func(h *tar.Header, r io.Reader, w *tar.Writer) error {
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(io.MultiWriter(w, n), r)
		return err
	}, dst, placeTo)
	return n.n, err
}

// cloneInto copies a folder into one that is empty.
func cloneInto(ctx context.Context, dst, src string, progress func(done, total int64)) (int64, error) {
	st, err := os.Lstat(dst)
	if err != nil {
		return 0, err
	}
	if err := os.Remove(dst); err != nil {
		return 0, err
	}
	var size int64
	err = clone.Tree(ctx, dst, src, clone.Options{Progress: progress, Copied: func(bytes, _ int64) { size = bytes }})
	if err != nil {
		os.Mkdir(dst, st.Mode().Perm()) // so that the volume can be removed
		return 0, err
	}
	return size, nil
}

func plainMount(volume, target string) mount.Mount {
	return mount.Mount{Type: mount.TypeVolume, Source: volume, Target: target, VolumeOptions: &mount.VolumeOptions{NoCopy: true}}
}

// counter counts what passes and tells it.
type counter struct {
	ctx      context.Context
	n        int64
	progress func(done, total int64)
}

func (c *counter) Write(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	c.n += int64(len(b))
	if c.progress != nil {
		c.progress(c.n, c.n)
	}
	return len(b), nil
}

// helper makes a container that is never started: what is in it and on its
// volumes can be read and written.
func (e *engine) helper(ctx context.Context, spec driver.Spec, image string, mounts []mount.Mount) (id string, remove func(), err error) {
	name := newName("helper", spec.Server)
	e.d.claim(name)
	remove = func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		defer e.d.disclaim(name)
		if err := e.removeContainer(after, name); err != nil {
			e.d.opts.Log.Warn("a container for copying stays", "container", name, "error", err)
			if away(err) {
				e.d.later("container "+name, func(ctx context.Context) error { return e.removeContainer(ctx, name) })
			}
		}
	}
	res, err := e.cli.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: name,
		Config: &container.Config{
			// An image may have no command. As the entrypoint it would stay in what is
			// committed of it.
			Image: image, Cmd: []string{"tine"},
			Labels: e.d.labels(spec, roleHelper, name),
		},
		HostConfig: &container.HostConfig{NetworkMode: "none", Mounts: mounts, LogConfig: container.LogConfig{Type: "none"}},
	})
	if err != nil {
		remove()
		return "", nil, e.explain(fmt.Sprintf("make a container of the image %q for copying", image), err)
	}
	return res.ID, remove, nil
}

// pump copies files from a path of one container to a path of another, through
// each, which writes what it wants of an entry. Names are below the path.
func (e *engine) pump(ctx context.Context, from, path string, each func(*tar.Header, io.Reader, *tar.Writer) error, to, at string) error {
	return e.put(ctx, to, at, func(w *tar.Writer) error {
		return e.walk(ctx, from, path, func(h *tar.Header, r io.Reader) error { return each(h, r, w) })
	})
}

// walk reads the files below a path of a container.
func (e *engine) walk(ctx context.Context, id, path string, each func(*tar.Header, io.Reader) error) error {
	res, err := e.cli.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return e.explain("read the files of a container", err)
	}
	defer res.Content.Close()
	base := pathpkg.Base(path)
	in := tar.NewReader(res.Content)
	for {
		h, err := in.Next()
		if err == io.EOF {
			return ctx.Err()
		}
		if err != nil {
			return e.explain("read the files of a container", err)
		}
		h.Name = below(h.Name, base)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = below(h.Linkname, base)
		}
		if err := each(h, in); err != nil {
			return err
		}
	}
}

// below takes the name of the directory off a path: Docker puts it before
// everything in it, and Podman does not. Nothing that a server makes is called as
// the places are that volumes are put for copying.
func below(name, base string) string {
	name = strings.Trim(strings.TrimPrefix(name, "./"), "/")
	if name == base {
		return "./"
	}
	if name = strings.TrimPrefix(name, base+"/"); name == "" {
		return "./"
	}
	return name
}

// Where volumes are put for copying.
const (
	placeFrom = "/tine/from-3b1f9d6c"
	placeTo   = "/tine/to-3b1f9d6c"
)

// put writes files to a path of a container, which is there.
func (e *engine) put(ctx context.Context, id, at string, fill func(*tar.Writer) error) error {
	r, w := io.Pipe()
	filled := make(chan error, 1)
	go func() { // ends when the reader is closed, at the latest
		out := tar.NewWriter(w)
		err := fill(out)
		if err == nil {
			err = out.Close()
		}
		w.CloseWithError(err)
		filled <- err
	}()
	_, err := e.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: at, Content: r})
	r.CloseWithError(io.ErrClosedPipe)
	if fillErr := <-filled; fillErr != nil && fillErr != io.ErrClosedPipe {
		return fillErr
	}
	if err != nil {
		return e.explain("write files to a container", err)
	}
	return nil
}

// readSmall reads one small file of a container.
func (e *engine) readSmall(ctx context.Context, id, path string) ([]byte, error) {
	res, err := e.cli.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: path})
	if err != nil {
		return nil, err
	}
	defer res.Content.Close()
	in := tar.NewReader(res.Content)
	if _, err := in.Next(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = io.Copy(&b, io.LimitReader(in, 1<<20))
	return b.Bytes(), err
}
