package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

func (c *cli) checkBuild() driver.Finding {
	linked, static := linkage()
	detail := c.buildVersion().String() + ", " + linked
	if !static {
		return driver.Found("build", driver.FoundWarn, detail, "it runs only where that library is; build with CGO_ENABLED=0 for a program that runs anywhere")
	}
	return driver.Found("build", driver.FoundOK, detail, "")
}

// checkConfigFile reads the config as serve does. The config is nil when it is
// broken.
func (c *cli) checkConfigFile(ctx context.Context, flag string) (conf *config.Config, path string, checks []driver.Finding) {
	const name = "config"
	if flag == "" && c.getenv("TINE_CONFIG") == "" {
		flag, _ = c.runningConfig(ctx) // if that is unknown, the config of this folder is checked
	}
	path, err := c.findConfig(flag)
	if err != nil {
		return nil, flag, []driver.Finding{driver.Found(name, driver.FoundBroken, err.Error(), "name a config that exists")}
	}
	conf, err = config.Load(path, c.configOptions())
	if err != nil {
		return nil, path, []driver.Finding{driver.Found(name, driver.FoundBroken, err.Error(), "mend it, then see tine config check")}
	}
	detail := "none found: the built-in defaults, " + countServers(conf)
	if path != "" {
		detail = path + ", " + countServers(conf)
	}
	checks = []driver.Finding{driver.Found(name, driver.FoundOK, detail, "")}
	if len(conf.Warnings) > 0 {
		checks[0] = driver.Found(name, driver.FoundWarn, detail+"\n"+strings.Join(conf.Warnings, "\n"), "")
	}
	for _, s := range enabled(conf) {
		checks = append(checks, checkServer(s)...)
	}
	return conf, path, checks
}

func (c *cli) checkState() driver.Finding {
	const name = "state"
	dir, err := c.stateDir()
	if err != nil {
		return driver.Found(name, driver.FoundBroken, err.Error(), "set --state or TINE_STATE to a folder of yours")
	}
	exists, at, err := writable(dir)
	if err != nil {
		return driver.Found(name, driver.FoundBroken, fmt.Sprintf("%s can't be written: %v", dir, err), "mend its rights, or set --state or TINE_STATE to a folder of yours")
	}
	detail := dir
	if !exists {
		detail += ", made at first use"
	}
	if kind, why := doubtfulFilesystem(at); why != "" {
		return driver.Found(name, driver.FoundWarn, fmt.Sprintf("%s is on %s: %s", detail, kind, why), "set --state or TINE_STATE to a folder on a local disk")
	}
	return driver.Found(name, driver.FoundOK, detail, "")
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

func (c *cli) checkListen(ctx context.Context, listen string, conf *config.Config) driver.Finding {
	const name = "port"
	l, err := net.Listen("tcp", listen)
	if err == nil {
		l.Close()
		return driver.Found(name, driver.FoundOK, listen+" is free", "")
	}
	if !errors.Is(err, syscall.EADDRINUSE) && !addressInUse(err) {
		return driver.Found(name, driver.FoundBroken, fmt.Sprintf("%s: %v", listen, err), "set listen in the config to an address of this machine")
	}
	if who := c.whoListens(ctx, listen, conf != nil && conf.TLS.Cert != ""); who != "" {
		return driver.Found(name, driver.FoundOK, fmt.Sprintf("%s is taken by %s", listen, who), "")
	}
	return driver.Found(name, driver.FoundBroken, listen+" is taken by another program", "stop that, or set listen in the config to another port")
}

// whoListens describes the gateway at an address; empty when none is there.
func (c *cli) whoListens(ctx context.Context, listen string, tls bool) string {
	ctx, cancel := context.WithTimeout(ctx, driver.CheckTime)
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
