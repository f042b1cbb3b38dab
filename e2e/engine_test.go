//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	moby "github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/torture"
)

// The images that images.sh makes and engine.sh loads. Docker knows them by these
// names and without "localhost/" too; Podman keeps local images under localhost
// and finds short names there. With the prefix both mean the same, and neither
// looks anywhere else for them.
const (
	imageStatic  = "localhost/tine-test/static:latest"  // Go servers of this tree, in /bin; no shell
	imageServers = "localhost/tine-test/servers:latest" // mcp-server-NAME: filesystem, memory, everything, time, fetch, motherduck
)

// An engine is one that runs containers, with a client of its own.
type engine struct {
	name string // docker or podman
	host string // as a config names it
	cli  *moby.Client
}

// bothEngines are for what differs between engines. The rest runs on one, and on
// both under torture.
var (
	bothEngines = []string{"docker", "podman"}
	oneEngine   = torture.Or(bothEngines[:1], bothEngines)
)

// onEngines runs a test on several engines at once.
func onEngines(t *testing.T, names []string, f func(t *testing.T, e *engine)) {
	t.Helper()
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, needEngine(t, name))
		})
	}
}

// needEngine returns the engine that engine.sh found or started, with both
// images, and ends the test where it is missing: as skipped on a laptop, as failed
// in CI.
func needEngine(t testing.TB, name string) *engine {
	t.Helper()
	e, err := findEngine(t.Context(), name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v; run: make setup, then e2e/engine.sh start", err)
	}
	t.Cleanup(func() { e.cli.Close() })
	return e
}

func findEngine(ctx context.Context, name string) (*engine, error) {
	socket, err := engineSocket(name)
	if err != nil {
		return nil, err
	}
	e, err := dialEngine(name, socket)
	if err != nil {
		return nil, err
	}
	for _, image := range []string{imageStatic, imageServers} {
		if _, err := e.cli.ImageInspect(ctx, image); err != nil {
			e.cli.Close()
			return nil, fmt.Errorf("%s at %s has no image %s: %w", name, e.host, image, err)
		}
	}
	return e, nil
}

func dialEngine(name, socket string) (*engine, error) {
	e := &engine{name: name, host: "unix://" + socket}
	var err error
	e.cli, err = moby.New(moby.WithHost(e.host))
	return e, err
}

// engineSocket is what engine.sh told the test, or wrote down.
func engineSocket(name string) (string, error) {
	key := "TINE_TEST_" + strings.ToUpper(name)
	if socket := os.Getenv(key); socket != "" {
		return socket, nil
	}
	data, err := os.ReadFile(filepath.Join(toolsDir(), "engine", "env"))
	if err != nil {
		return "", fmt.Errorf("no %s for tests: %w", name, err)
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			return strings.Trim(value, "'"), nil
		}
	}
	return "", fmt.Errorf("no %s for tests: none answered when engine.sh looked", name)
}

// yaml renders a server in a container of this engine.
func (e *engine) yaml(id, image, docker string, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s:\n    docker: {host: %q, image: %q, pull: never, %s}\n", id, e.host, image, docker)
	for _, line := range more {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	return b.String()
}

func gatewayID(t testing.TB, g *gateway) string {
	t.Helper()
	status, err := g.client(t).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status.Gateway
}

// owned is what an engine has of an owner, by kind and name.
type owned map[string]string

// owned lists everything with a label, such as tine.gateway=ID.
func (e *engine) owned(ctx context.Context, label string) (owned, error) {
	f := make(moby.Filters).Add("label", label)
	all := owned{}
	containers, err := e.cli.ContainerList(ctx, moby.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		return nil, err
	}
	for _, c := range containers.Items {
		all["container "+c.ID] = fmt.Sprint(c.State, " ", c.Labels)
	}
	volumes, err := e.cli.VolumeList(ctx, moby.VolumeListOptions{Filters: f})
	if err != nil {
		return nil, err
	}
	for _, v := range volumes.Items {
		all["volume "+v.Name] = fmt.Sprint(v.Labels)
	}
	images, err := e.cli.ImageList(ctx, moby.ImageListOptions{All: true, Filters: f})
	if err != nil {
		return nil, err
	}
	for _, i := range images.Items {
		all["image "+i.ID] = fmt.Sprint(i.RepoTags, " ", i.Labels)
	}
	networks, err := e.cli.NetworkList(ctx, moby.NetworkListOptions{Filters: f})
	if err != nil {
		return nil, err
	}
	for _, n := range networks.Items {
		all["network "+n.Name] = fmt.Sprint(n.Labels)
	}
	return all, nil
}

// count is how many there are of a kind: container, volume, image or network.
func (o owned) count(kind string) (n int) {
	for name := range o {
		if strings.HasPrefix(name, kind+" ") {
			n++
		}
	}
	return n
}

func (e *engine) mustOwned(t testing.TB, label string) owned {
	t.Helper()
	all, err := e.owned(t.Context(), label)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// nothingOf holds that the engine has nothing of a gateway any more, or soon.
func (e *engine) nothingOf(t testing.TB, gateway string) {
	t.Helper()
	err := eventually(func() error {
		all, err := e.owned(t.Context(), "tine.gateway="+gateway)
		if err != nil {
			return final{err}
		}
		var left []error
		for name, what := range all {
			left = append(left, fmt.Errorf("%s is left: %s", name, what))
		}
		return errors.Join(left...)
	})
	if err != nil {
		t.Errorf("in %s: %v", e.name, err)
	}
}

// sweepAfter removes what a test that failed leaves of a gateway in the engine.
// Called before the gateway is made, it does so after it has ended.
func (e *engine) sweepAfter(t testing.TB, gateway *string) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() || *gateway == "" {
			return
		}
		ctx := context.WithoutCancel(t.Context())
		all, err := e.owned(ctx, "tine.gateway="+*gateway)
		if err != nil {
			t.Logf("can't look what is left in %s: %v", e.name, err)
		}
		for _, kind := range []string{"container", "volume", "image", "network"} {
			for thing := range all {
				what, name, _ := strings.Cut(thing, " ")
				if what != kind {
					continue
				}
				switch kind {
				case "container":
					_, err = e.cli.ContainerRemove(ctx, name, moby.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
				case "volume":
					_, err = e.cli.VolumeRemove(ctx, name, moby.VolumeRemoveOptions{Force: true})
				case "image":
					_, err = e.cli.ImageRemove(ctx, name, moby.ImageRemoveOptions{Force: true})
				case "network":
					_, err = e.cli.NetworkRemove(ctx, name, moby.NetworkRemoveOptions{})
				}
				if err != nil && !errdefs.IsNotFound(err) { // the gateway may still be at it
					t.Logf("%s of a test that failed stays in %s: %v", thing, e.name, err)
				}
			}
		}
	})
}
