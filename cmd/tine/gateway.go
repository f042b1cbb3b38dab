package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tine-mcp/tine/client"
)

// answerTime bounds requests that a gateway answers from memory or after asking
// servers once. Calls of tools have no bound here: the gateway sets it.
const answerTime = time.Minute

// gateway is a running gateway as the CLI found it.
type gateway struct {
	*client.Client
	from string // how it was found, for messages; empty when it was named
}

// connect finds the gateway to talk to. It sends nothing yet.
func (c *cli) connect() (*gateway, error) {
	token, err := c.namedToken()
	if err != nil {
		return nil, err
	}
	url := c.flags.url
	if url == "" {
		url = c.getenv("TINE_URL")
	}
	g := &gateway{}
	var through *http.Client
	file, err := c.runningGateway()
	switch {
	case err == nil && file == nil:
		if url == "" {
			url, g.from = c.configuredURL()
		}
	case err != nil && url == "":
		return nil, err
	case err == nil && (url == "" || sameURL(url, file.URL)):
		// The file's token is for the file's gateway only.
		if token == "" {
			token = file.Token
		}
		through = &http.Client{Transport: file.transport()}
		if url == "" {
			url = file.URL
			g.from = fmt.Sprintf("process %d wrote that address to %s in the state folder and may be gone", file.PID, gatewayFileName)
		}
	}
	g.Client, err = client.New(client.Options{URL: url, Token: token, HTTPClient: through})
	if err != nil {
		return nil, &usageError{err}
	}
	c.connected = append(c.connected, g.Client)
	return g, nil
}

// configuredURL is where a gateway that is started here would be: at the address of
// the config, else at the default one, as from says.
func (c *cli) configuredURL() (url, from string) {
	const none = "no gateway has written its address to the state folder, and this is "
	url, from = client.DefaultURL, none+"the default address"
	path, err := c.findConfig("")
	if err != nil || path == "" {
		return url, from
	}
	cfg, err := c.loadConfig(path, "")
	if err != nil {
		return url, from + ", as the config can't be read: " + oneLine(err.Error())
	}
	addr, err := net.ResolveTCPAddr("tcp", cfg.Listen)
	if err != nil || addr.Port == 0 {
		return url, from
	}
	return scheme(cfg) + reachable(addr), none + "the one in " + path
}

// runningGateway reads the gateway file; nil when there is none.
func (c *cli) runningGateway() (*gatewayFile, error) {
	state, err := c.stateDir()
	if err != nil {
		return nil, nil // without a home there is no file either, and a URL does
	}
	file, err := readGatewayFile(state)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the gateway: %w", err)
	}
	return file, nil
}

// namedToken is the token that flags or environment give; empty when none do.
func (c *cli) namedToken() (string, error) {
	switch {
	case c.flags.token != "" && c.flags.tokenFile != "":
		return "", usagef("--token and --token-file exclude each other; give one")
	case c.flags.token != "":
		return c.flags.token, nil
	case c.flags.tokenFile != "":
		raw, err := readFile(c.flags.tokenFile, 64<<10)
		if err != nil {
			return "", fmt.Errorf("read --token-file: %w", err)
		}
		token := strings.TrimSpace(string(raw))
		if token == "" {
			return "", fmt.Errorf("--token-file %s is empty", c.flags.tokenFile)
		}
		return token, nil
	}
	return c.getenv("TINE_TOKEN"), nil
}

// ask sends one request to the gateway within answerTime.
func ask[T any](ctx context.Context, g *gateway, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	v, err := f(ctx)
	return v, g.explain(err)
}

// askFor is ask for a request about one thing.
func askFor[A, T any](ctx context.Context, g *gateway, f func(context.Context, A) (T, error), about A) (T, error) {
	return ask(ctx, g, func(ctx context.Context) (T, error) { return f(ctx, about) })
}

// explain adds how the address was found if the gateway can't be reached.
func (g *gateway) explain(err error) error {
	if g.from == "" || !errors.Is(err, client.ErrNoGateway) {
		return err
	}
	return fmt.Errorf("%w (%s)", err, g.from)
}

func sameURL(a, b string) bool {
	return strings.TrimRight(a, "/") == strings.TrimRight(b, "/")
}

// readFile reads a file of at most max bytes.
func readFile(path string, max int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, max)
}

func readAll(r io.Reader, name string, max int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > max {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, max)
	}
	return raw, nil
}
