package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	moby "github.com/moby/moby/client"
)

// engineTimeout bounds one container's way from nothing to its first answer.
const engineTimeout = 2 * time.Minute

// benchLabel is on everything that a run has the engine make, also what the
// gateway makes there; its value is the process that measures.
const benchLabel = "bench-of-tine"

// rawEngine is the container engine, spoken to without Tine.
type rawEngine struct {
	cli   *moby.Client
	host  string
	owner string
}

// dialEngine finds the engine that the tests use, or the one of DOCKER_HOST, or
// the usual one, and the image in it.
func dialEngine(ctx context.Context) (*rawEngine, error) {
	host := os.Getenv("TINE_TEST_DOCKER")
	if host == "" {
		host = os.Getenv("DOCKER_HOST")
	}
	if host == "" {
		host = moby.DefaultDockerHost
	}
	if !strings.Contains(host, "://") {
		host = "unix://" + host
	}
	cli, err := moby.New(moby.WithHost(host))
	if err != nil {
		return nil, fmt.Errorf("the container engine %s: %w", host, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := cli.Ping(ctx, moby.PingOptions{NegotiateAPIVersion: true}); err != nil {
		return nil, errors.Join(fmt.Errorf("no container engine answers at %s; run: e2e/engine.sh start: %w", host, err), cli.Close())
	}
	if _, err := cli.ImageInspect(ctx, staticImage); err != nil {
		return nil, errors.Join(fmt.Errorf("the engine at %s has no image %s; run: make setup, then e2e/engine.sh start: %w", host, staticImage, err), cli.Close())
	}
	return &rawEngine{cli: cli, host: host, owner: strconv.Itoa(os.Getpid())}, nil
}

// rawContainer is a container with a server that was initialized.
type rawContainer struct {
	e      *rawEngine
	id     string
	volume string // its state; empty for none
	image  string // made for it; empty for none
	link   *stdioLink
}

// hijacked closes both directions at once.
type hijacked struct{ net.Conn }

// layout is how a server is put into a container.
type layout struct {
	image  string
	dir    string // where the server keeps what it is told
	volume string // mounted there; empty for none
	root   bool   // the container is writable
	// tree is copied to dir before the server starts; empty for nothing.
	tree string
}

// program is what runs in a container.
func (l layout) program() []string { return []string{"/bin/stateserver", "-dir", l.dir} }

// options are those that the gateway gives a container, too: what is measured is
// who asks the engine, and not what is asked of it.
func (e *rawEngine) options(l layout) moby.ContainerCreateOptions {
	pids := int64(512)
	host := &container.HostConfig{
		LogConfig:   container.LogConfig{Type: "none"},
		NetworkMode: "none",
		CapDrop:     []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
		Resources:     container.Resources{Memory: 2 << 30, MemorySwap: 2 << 30, PidsLimit: &pids},
	}
	if !l.root {
		host.ReadonlyRootfs = true
		host.Tmpfs = map[string]string{"/tmp": "rw,nosuid,nodev,mode=1777"}
	}
	if l.volume != "" {
		host.Mounts = []mount.Mount{{Type: mount.TypeVolume, Source: l.volume, Target: l.dir}}
	}
	return moby.ContainerCreateOptions{
		Config: &container.Config{
			Image: l.image, Entrypoint: l.program(), Labels: map[string]string{benchLabel: e.owner},
			// Its input ends with us, and with that its server.
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		},
		HostConfig: host,
	}
}

// start makes a container and has its server answer initialize.
func (e *rawEngine) start(ctx context.Context, l layout) (_ *rawContainer, err error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	res, err := e.cli.ContainerCreate(ctx, e.options(l))
	if err != nil {
		return nil, fmt.Errorf("create a container: %w", err)
	}
	c := &rawContainer{e: e, id: res.ID, volume: l.volume}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.remove())
		}
	}()
	if l.tree != "" {
		if err := e.fill(ctx, c.id, l.dir, l.tree); err != nil {
			return nil, err
		}
	}
	a, err := e.cli.ContainerAttach(ctx, c.id, moby.ContainerAttachOptions{Stream: true, Stdin: true, Stdout: true, Stderr: true})
	if err != nil {
		return nil, fmt.Errorf("attach to a container: %w", err)
	}
	out, to := io.Pipe()
	go func() { // ends with the connection
		_, err := stdcopy.StdCopy(to, io.Discard, a.Reader)
		if err == nil {
			err = io.EOF
		}
		to.CloseWithError(err)
	}()
	c.link = newStdioLink(hijacked{a.Conn}, out, "put", minPayload)
	if _, err := e.cli.ContainerStart(ctx, c.id, moby.ContainerStartOptions{}); err != nil {
		return nil, fmt.Errorf("start a container: %w", err)
	}
	return c, c.link.handshake(ctx)
}

// fill copies the files of a tree into a container that was not started.
func (e *rawEngine) fill(ctx context.Context, id, dir, tree string) error {
	var content bytes.Buffer
	w := tar.NewWriter(&content)
	if err := errors.Join(w.AddFS(os.DirFS(tree)), w.Close()); err != nil {
		return err
	}
	if _, err := e.cli.CopyToContainer(ctx, id, moby.CopyToContainerOptions{DestinationPath: dir, Content: &content}); err != nil {
		return fmt.Errorf("copy files into a container: %w", err)
	}
	return nil
}

// newVolume makes a volume; the files of a local one are at a path.
func (e *rawEngine) newVolume(ctx context.Context) (name, path string, err error) {
	res, err := e.cli.VolumeCreate(ctx, moby.VolumeCreateOptions{Labels: map[string]string{benchLabel: e.owner}})
	if err != nil {
		return "", "", fmt.Errorf("make a volume: %w", err)
	}
	return res.Volume.Name, res.Volume.Mountpoint, nil
}

// remove ends a container and removes what was made for it.
func (c *rawContainer) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	_, err := c.e.cli.ContainerRemove(ctx, c.id, moby.ContainerRemoveOptions{Force: true})
	if c.link != nil {
		c.link.close()
	}
	if c.volume != "" {
		_, verr := c.e.cli.VolumeRemove(ctx, c.volume, moby.VolumeRemoveOptions{})
		err = errors.Join(err, verr)
	}
	if c.image != "" {
		_, ierr := c.e.cli.ImageRemove(ctx, c.image, moby.ImageRemoveOptions{})
		err = errors.Join(err, ierr)
	}
	return err
}

// tell calls a tool of the server and returns its answer as it came.
func (c *rawContainer) tell(ctx context.Context, tool, arguments string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	line, err := c.link.roundTrip(ctx, "1", fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments))
	return string(line), err
}

// sweep removes what runs that are over left in the engine: those of which no
// process is left, and with ours this one's. It returns what it found of ours.
func (e *rawEngine) sweep(ours bool) (found []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineTimeout)
	defer cancel()
	f := make(moby.Filters).Add("label", benchLabel)
	over := func(labels map[string]string) bool {
		if labels[benchLabel] == e.owner {
			return ours
		}
		return processGone(labels[benchLabel])
	}
	containers, err := e.cli.ContainerList(ctx, moby.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Items {
		if over(c.Labels) {
			found = append(found, fmt.Sprint("container ", c.Names))
			_, rerr := e.cli.ContainerRemove(ctx, c.ID, moby.ContainerRemoveOptions{Force: true})
			err = errors.Join(err, rerr)
		}
	}
	volumes, lerr := e.cli.VolumeList(ctx, moby.VolumeListOptions{Filters: f})
	err = errors.Join(err, lerr)
	for _, v := range volumes.Items {
		if over(v.Labels) {
			found = append(found, "volume "+v.Name)
			_, rerr := e.cli.VolumeRemove(ctx, v.Name, moby.VolumeRemoveOptions{Force: true})
			err = errors.Join(err, rerr)
		}
	}
	images, lerr := e.cli.ImageList(ctx, moby.ImageListOptions{Filters: f})
	err = errors.Join(err, lerr)
	for _, i := range slices.Backward(images.Items) {
		if over(i.Labels) {
			found = append(found, fmt.Sprint("image ", i.RepoTags))
			_, rerr := e.cli.ImageRemove(ctx, i.ID, moby.ImageRemoveOptions{Force: true})
			err = errors.Join(err, rerr)
		}
	}
	return found, err
}

// processGone is whether no process has this number.
func processGone(pid string) bool {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return false
	}
	p, err := os.FindProcess(n)
	if err != nil {
		return true
	}
	return errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone)
}
