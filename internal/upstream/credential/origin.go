package credential

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"

	"github.com/tine-mcp/tine/internal/publicnet"
)

// serverURL is a server's URL as its metadata should name it: without what may
// be secret, such as a key in the query, and what means nothing to the server.
func serverURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("the server's URL can't be read")
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, errors.New("the server's URL is no http or https URL")
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u, nil
}

func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// checkEndpoint refuses endpoints that secrets would reach in the clear.
func checkEndpoint(raw string) error {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "":
		return errors.New("is no URL")
	case strings.EqualFold(u.Scheme, "https"):
		return nil
	case strings.EqualFold(u.Scheme, "http") && loopback(u.Hostname()):
		return nil
	}
	return errors.New("must be https, or http on loopback")
}

// checkNamed refuses what a server may not name to us: besides endpoints that
// are not safe, those on this machine where the server is elsewhere.
func checkNamed(server *url.URL, raw string) error {
	if err := checkEndpoint(raw); err != nil {
		return err
	}
	u, err := url.Parse(raw)
	if err != nil {
		return err
	}
	if loopback(u.Hostname()) && !loopback(server.Hostname()) {
		return errors.New("is on this machine, which a server elsewhere may not name")
	}
	if ip, ok := publicnet.ParseHost(u.Hostname()); ok && !publicnet.IsPublic(ip) && !loopback(u.Hostname()) && u.Hostname() != server.Hostname() {
		return errors.New("is an address of a private network, which a server may not name")
	}
	return nil
}
