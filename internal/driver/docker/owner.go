package docker

import (
	"archive/tar"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/moby/moby/api/types/mount"

	"github.com/tine-mcp/tine/internal/driver"
)

// person is the owner of files in a container.
type person struct{ uid, gid int }

// owner is the user that a server runs as. Its files are given to that user: without
// capabilities not even root may write to another user's files.
func (e *engine) owner(ctx context.Context, spec driver.Spec) (person, error) {
	user := options(spec).User
	if user == "" {
		res, err := e.cli.ImageInspect(ctx, options(spec).Image)
		if err != nil {
			return person{}, e.explain("look at the image", err)
		}
		if res.Config != nil {
			user = res.Config.User
		}
	}
	name, group, _ := strings.Cut(user, ":")
	if name == "" {
		name = "0"
	}
	if group == "" {
		group = "0"
	}
	uid, err := strconv.Atoi(name)
	gid, err2 := strconv.Atoi(group)
	if err == nil && err2 == nil {
		return person{uid, gid}, nil
	}
	return e.lookUp(ctx, spec, user)
}

// lookUp finds the numbers of a user by the files of the image.
func (e *engine) lookUp(ctx context.Context, spec driver.Spec, user string) (person, error) {
	id, remove, err := e.helper(ctx, spec, options(spec).Image, nil)
	if err != nil {
		return person{}, err
	}
	defer remove()
	name, group, _ := strings.Cut(user, ":")
	var p person
	if p.uid, err = strconv.Atoi(name); err != nil {
		fields, err := e.entry(ctx, id, "/etc/passwd", name)
		if err != nil {
			return person{}, fmt.Errorf("the user %q: %w; mend docker.user", user, err)
		}
		p.uid, _ = strconv.Atoi(fields[2])
		p.gid, _ = strconv.Atoi(fields[3])
	}
	if group == "" {
		return p, nil
	}
	if p.gid, err = strconv.Atoi(group); err != nil {
		fields, err := e.entry(ctx, id, "/etc/group", group)
		if err != nil {
			return person{}, fmt.Errorf("the user %q: %w; mend docker.user", user, err)
		}
		p.gid, _ = strconv.Atoi(fields[2])
	}
	return p, nil
}

// entry finds a line of a file such as /etc/passwd.
func (e *engine) entry(ctx context.Context, id, file, name string) ([]string, error) {
	b, err := e.readSmall(ctx, id, file)
	if err != nil {
		return nil, fmt.Errorf("the image has no %s: %w", file, err)
	}
	for line := range strings.Lines(string(b)) {
		if fields := strings.Split(strings.TrimSpace(line), ":"); fields[0] == name && len(fields) >= 4 {
			return fields, nil
		}
	}
	return nil, fmt.Errorf("%s of the image does not have %q", file, name)
}

// give sets the owner of an empty volume. Where the image has something at the path,
// the image decides.
func (m *making) give(ctx context.Context, p piece, to person) error {
	if dir, ok := m.e.hostPath(ctx, p.Volume); ok {
		return os.Chown(dir, to.uid, to.gid)
	}
	id, remove, err := m.e.helper(ctx, m.spec, m.Base, []mount.Mount{plainMount(p.Volume, placeTo)})
	if err != nil {
		return err
	}
	defer remove()
	return m.e.put(ctx, id, placeTo, func(w *tar.Writer) error {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755, Uid: to.uid, Gid: to.gid})
	})
}
