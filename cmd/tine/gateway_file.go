package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/client"
)

// gatewayFileName is the file in the state folder by which the CLI finds the
// gateway that runs on it.
const gatewayFileName = "gateway.json"

// gatewayFile is how to reach the running gateway of a state folder. It holds a
// token, so only its owner may read it.
type gatewayFile struct {
	URL    string `json:"url"`
	Token  string `json:"token,omitempty"`
	PID    int    `json:"pid"`
	Cert   string `json:"cert,omitempty"`   // SHA-256 of the certificate it shows, in hex; empty without TLS
	Config string `json:"config,omitempty"` // empty for the built-in defaults
}

// transport reaches the gateway. Its certificate is for its public names and rarely
// for the local address, so it is checked by the fingerprint in the file and not by
// a name.
func (g *gatewayFile) transport() *http.Transport {
	t := &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}
	if g.Cert == "" {
		return t
	}
	t.TLSClientConfig = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || fingerprint(s.PeerCertificates[0].Raw) != g.Cert {
				return fmt.Errorf("the server at %s is not the gateway of this state folder", g.URL)
			}
			return nil
		},
	}
	return t
}

// client speaks to the gateway as this machine's operator.
func (g *gatewayFile) client() (*client.Client, error) {
	return client.New(client.Options{URL: g.URL, Token: g.Token, HTTPClient: &http.Client{Transport: g.transport()}})
}

func fingerprint(cert []byte) string {
	sum := sha256.Sum256(cert)
	return hex.EncodeToString(sum[:])
}

// readGatewayFile reads the file of a state folder. The error wraps
// fs.ErrNotExist when there is none.
func readGatewayFile(state string) (*gatewayFile, error) {
	path := filepath.Join(state, gatewayFileName)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err // an *fs.PathError, which names the file
	}
	var g gatewayFile
	if err := json.Unmarshal(raw, &g); err != nil {
		return nil, fmt.Errorf("%s does not parse: %w; restart the gateway, which writes it anew", path, err)
	}
	if g.URL == "" {
		return nil, fmt.Errorf("%s has no url; restart the gateway, which writes it anew", path)
	}
	return &g, nil
}

// writeGatewayFile puts the file into the state folder. A reader sees the old
// one or the new one and never a part.
func writeGatewayFile(state string, g gatewayFile) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return fmt.Errorf("encode %s: %w", gatewayFileName, err)
	}
	if err := writeAtomic(filepath.Join(state, gatewayFileName), append(raw, '\n')); err != nil {
		return fmt.Errorf("write %s: %w; is the state folder writable?", gatewayFileName, err)
	}
	return nil
}

// removeGatewayFile removes the file if the process with this id still owns it: another
// gateway may have followed on the same folder.
func removeGatewayFile(state string, pid int) error {
	g, err := readGatewayFile(state)
	if errors.Is(err, fs.ErrNotExist) || err == nil && g.PID != pid {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(state, gatewayFileName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// writeAtomic replaces a file as a whole, readable by its owner alone.
func writeAtomic(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // made with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close() // a second close does no harm
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
