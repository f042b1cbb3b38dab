//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	moby "github.com/moby/moby/client"
)

// serversImage has the reference servers of npm and PyPI.
const serversImage = "tine-test/servers"

// presetEngine is the Docker Engine that the tests of presets use.
type presetEngine struct {
	cli  *moby.Client
	host string
}

// needPresetEngine finds the engine that engine.sh started or found, with the
// image, and ends the test where there is none: as skipped on a laptop, as failed
// in CI.
func needPresetEngine(t testing.TB) *presetEngine {
	t.Helper()
	e, err := findPresetEngine(t.Context())
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v; run: make setup, then e2e/engine.sh start", err)
	}
	t.Cleanup(func() { e.cli.Close() })
	return e
}

func findPresetEngine(ctx context.Context) (*presetEngine, error) {
	socket := os.Getenv("TINE_TEST_DOCKER")
	if socket == "" {
		data, err := os.ReadFile(filepath.Join(toolsDir(), "engine", "env"))
		if err != nil {
			return nil, fmt.Errorf("no Docker Engine for tests: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if value, ok := strings.CutPrefix(strings.TrimSpace(line), "TINE_TEST_DOCKER="); ok {
				socket = strings.Trim(value, "'")
			}
		}
	}
	if socket == "" {
		return nil, errors.New("no Docker Engine for tests")
	}
	host := socket
	if !strings.Contains(host, "://") {
		host = "unix://" + host
	}
	cli, err := moby.New(moby.WithHost(host))
	if err != nil {
		return nil, err
	}
	if _, err := cli.ImageInspect(ctx, serversImage); err != nil {
		cli.Close()
		return nil, fmt.Errorf("image %s at %s: %w", serversImage, host, err)
	}
	return &presetEngine{cli, host}, nil
}

// gatewayOf is the label that everything of the gateway has, taken from a
// container of one of its sessions.
func (e *presetEngine) gatewayOf(t testing.TB, session string) string {
	t.Helper()
	list, err := e.cli.ContainerList(t.Context(), moby.ContainerListOptions{All: true, Filters: make(moby.Filters).Add("label", "tine.session="+session)})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 || list.Items[0].Labels["tine.gateway"] == "" {
		t.Fatalf("session %s has no container with labels: %+v", session, list.Items)
	}
	return list.Items[0].Labels["tine.gateway"]
}

// containers counts those of a session.
func (e *presetEngine) containers(t testing.TB, session string) int {
	t.Helper()
	list, err := e.cli.ContainerList(t.Context(), moby.ContainerListOptions{Filters: make(moby.Filters).Add("label", "tine.session="+session)})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// leftOf names every thing of the gateway that the engine has; with shared false
// only what belongs to sessions.
func (e *presetEngine) leftOf(ctx context.Context, gateway string, shared bool) error {
	f := make(moby.Filters).Add("label", "tine.gateway="+gateway)
	var left []error
	add := func(labels map[string]string, err error) {
		if shared || labels["tine.session"] != "" {
			left = append(left, err)
		}
	}
	containers, err := e.cli.ContainerList(ctx, moby.ContainerListOptions{All: true, Filters: f})
	if err != nil {
		return final{err}
	}
	for _, c := range containers.Items {
		add(c.Labels, fmt.Errorf("container %v is left: %s, %v", c.Names, c.Status, c.Labels))
	}
	volumes, err := e.cli.VolumeList(ctx, moby.VolumeListOptions{Filters: f})
	if err != nil {
		return final{err}
	}
	for _, v := range volumes.Items {
		add(v.Labels, fmt.Errorf("volume %s is left: %v", v.Name, v.Labels))
	}
	images, err := e.cli.ImageList(ctx, moby.ImageListOptions{All: true, Filters: f})
	if err != nil {
		return final{err}
	}
	for _, i := range images.Items {
		add(i.Labels, fmt.Errorf("image %v is left: %v", i.RepoTags, i.Labels))
	}
	networks, err := e.cli.NetworkList(ctx, moby.NetworkListOptions{Filters: f})
	if err != nil {
		return final{err}
	}
	for _, n := range networks.Items {
		add(n.Labels, fmt.Errorf("network %s is left: %v", n.Name, n.Labels))
	}
	return errors.Join(left...)
}

// nothingLeft holds that a gateway that ended in good order has nothing in the
// engine.
func (e *presetEngine) nothingLeft(t testing.TB, gateway string) {
	t.Helper()
	if err := eventually(func() error { return e.leftOf(t.Context(), gateway, true) }); err != nil {
		t.Errorf("in the engine, after all was closed and the gateway had ended: %v", err)
	}
}

// page serves one page where containers on the engine's own network find it, and
// returns its URL.
func (e *presetEngine) page(t testing.TB) string {
	t.Helper()
	bridge, err := e.cli.NetworkInspect(t.Context(), "bridge", moby.NetworkInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Engines don't all say which address is the host's.
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	address := ""
	for _, a := range addresses {
		own, err := netip.ParsePrefix(a.String())
		for _, c := range bridge.Network.IPAM.Config {
			if err == nil && c.Subnet.Contains(own.Addr()) {
				address = own.Addr().String()
			}
		}
	}
	if address == "" {
		t.Fatalf("the engine's network is not on this machine: %+v", bridge.Network.IPAM)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(presetPage)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s.URL + "/page"
}

var presetPage = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<html><body><article><h1>A page</h1><p>with words on it</p></article></body></html>")
})
