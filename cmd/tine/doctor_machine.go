package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/config"
)

func (c *cli) checkBuild() check {
	linked, static := linkage()
	detail := c.buildVersion().String() + ", " + linked
	if !static {
		return check{"build", checkWarn, detail, "it runs only where that library is; build with CGO_ENABLED=0 for a program that runs anywhere"}
	}
	return check{"build", checkOK, detail, ""}
}

// checkConfigFile reads the config as serve does. The config is nil when it is
// broken.
func (c *cli) checkConfigFile(ctx context.Context, flag string) (conf *config.Config, path string, checks []check) {
	const name = "config"
	if flag == "" && c.getenv("TINE_CONFIG") == "" {
		flag, _ = c.runningConfig(ctx) // where it has none, or is elsewhere, the one of this folder is looked at
	}
	path, err := c.findConfig(flag)
	if err != nil {
		return nil, flag, []check{{name, checkBroken, err.Error(), "name a config that is there"}}
	}
	conf, err = config.Load(path, c.configOptions())
	if err != nil {
		return nil, path, []check{{name, checkBroken, err.Error(), "mend it, then see tine config check"}}
	}
	detail := "none found: the built-in defaults, " + countServers(conf)
	if path != "" {
		detail = path + ", " + countServers(conf)
	}
	checks = []check{{name, checkOK, detail, ""}}
	if len(conf.Warnings) > 0 {
		checks[0] = check{name, checkWarn, detail + "\n" + strings.Join(conf.Warnings, "\n"), ""}
	}
	for _, s := range conf.Servers {
		if ch, ok := checkCommand(s); !ok {
			checks = append(checks, ch)
		}
	}
	return conf, path, checks
}

// checkCommand looks for the program of a server where that can be told from
// here.
func checkCommand(s config.Server) (check, bool) {
	if !s.Enabled || s.Disabled != "" {
		return check{}, true
	}
	if ownRoot(s) {
		return checkRoot(s)
	}
	if s.Command == "" || s.Env["PATH"] != "" {
		return check{}, true
	}
	if ch, ok, fetched := checkFetched(s); fetched {
		return ch, ok
	}
	if strings.ContainsAny(s.Command, `/\`) && !filepath.IsAbs(s.Command) {
		return check{}, true // relative to wherever it is started
	}
	if _, err := exec.LookPath(s.Command); err != nil {
		return check{
			"server " + s.ID, checkMissing, fmt.Sprintf("command %q: %v", s.Command, err),
			fmt.Sprintf("install it, or set servers.%s.command", s.ID),
		}, false
	}
	return check{}, true
}

func (c *cli) checkState() check {
	const name = "state"
	dir, err := c.stateDir()
	if err != nil {
		return check{name, checkBroken, err.Error(), "set --state or TINE_STATE to a folder of yours"}
	}
	exists, at, err := writable(dir)
	if err != nil {
		return check{name, checkBroken, fmt.Sprintf("%s can't be written: %v", dir, err), "mend its rights, or set --state or TINE_STATE to a folder of yours"}
	}
	detail := dir
	if !exists {
		detail += ", made at first use"
	}
	if kind, why := doubtfulFilesystem(at); why != "" {
		return check{name, checkWarn, fmt.Sprintf("%s is on %s: %s", detail, kind, why), "set --state or TINE_STATE to a folder on a local disk"}
	}
	return check{name, checkOK, detail, ""}
}

// writable tries to write to a folder, or to the nearest above it that exists,
// which it returns.
func writable(dir string) (exists bool, at string, err error) {
	at = dir
	for {
		info, err := os.Stat(at)
		if err == nil && !info.IsDir() {
			return false, at, fmt.Errorf("%s is not a folder", at)
		}
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(at) == at {
			return false, at, err
		}
		at = filepath.Dir(at)
	}
	f, err := os.CreateTemp(at, ".tine-doctor-*")
	if err != nil {
		return at == dir, at, err
	}
	f.Close()
	return at == dir, at, os.Remove(f.Name())
}

func (c *cli) checkListen(ctx context.Context, listen string, conf *config.Config) check {
	const name = "port"
	l, err := net.Listen("tcp", listen)
	if err == nil {
		l.Close()
		return check{name, checkOK, listen + " is free", ""}
	}
	if !errors.Is(err, syscall.EADDRINUSE) && !addressInUse(err) {
		return check{name, checkBroken, fmt.Sprintf("%s: %v", listen, err), "set listen in the config to an address of this machine"}
	}
	if who := c.whoListens(ctx, listen, conf != nil && conf.TLS.Cert != ""); who != "" {
		return check{name, checkOK, fmt.Sprintf("%s is taken by %s", listen, who), ""}
	}
	return check{name, checkBroken, listen + " is taken by another program", "stop that, or set listen in the config to another port"}
}

// whoListens describes the gateway at an address; empty when none is there.
func (c *cli) whoListens(ctx context.Context, listen string, tls bool) string {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	t := (&gatewayFile{}).transport()
	o := client.Options{URL: "http://" + net.JoinHostPort(host, port)}
	if tls {
		o.URL = "https://" + net.JoinHostPort(host, port)
	}
	// A name may stand in the certificate: the gateway's own file has it.
	if file, err := c.runningGateway(); err == nil && file != nil && strings.HasSuffix(strings.TrimRight(file.URL, "/"), ":"+port) {
		o.URL, o.Token, t = file.URL, file.Token, file.transport()
	}
	defer t.CloseIdleConnections()
	o.HTTPClient = &http.Client{Transport: t}
	g, err := client.New(o)
	if err != nil {
		return ""
	}
	s, err := g.Status(ctx)
	var ae *api.Error
	switch {
	case err == nil && s.Version != "":
		return fmt.Sprintf("a running tine %s, process %d", s.Version, s.PID)
	case errors.As(err, &ae):
		return "a running tine"
	}
	return ""
}
