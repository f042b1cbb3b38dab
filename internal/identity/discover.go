package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"strings"

	"github.com/coreos/go-oidc/v3/oidc"
)

// load finds out where the keys are, unless that is known, and gets them. After
// a failure it looks for the place again.
func (k *keyring) load(ctx context.Context) (set *keySet, err error) {
	defer func() { // an issuer's answer must not end the gateway
		if v := recover(); v != nil {
			k.log.Error("reading the keys of the issuer panicked", "issuer", k.issuer, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			set, err = nil, errors.New("the keys could not be read; the gateway's log has the stack")
		}
	}()
	client, err := k.client()
	if err != nil {
		return nil, err
	}
	if k.keysURL == "" {
		place, err := k.discover(oidc.ClientContext(ctx, client))
		if err != nil {
			return nil, fmt.Errorf("discovery: %w", err)
		}
		k.keysURL = place
	}
	set, err = getKeys(ctx, client, k.keysURL)
	if err != nil {
		k.keysURL = ""
		return nil, fmt.Errorf("keys: %w", err)
	}
	return set, nil
}

// discover reads the issuer's own description, which must name it exactly.
func (k *keyring) discover(ctx context.Context) (keysURL string, err error) {
	provider, err := oidc.NewProvider(ctx, k.issuer)
	if err != nil {
		return "", err
	}
	var doc struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&doc); err != nil {
		return "", err
	}
	place, err := url.Parse(doc.Keys)
	if err != nil || place.Host == "" {
		return "", errors.New("it names no jwks_uri")
	}
	if strings.HasPrefix(k.issuer, "https://") && place.Scheme != "https" {
		return "", errors.New("its jwks_uri is not https although the issuer is")
	}
	return doc.Keys, nil
}

func getKeys(ctx context.Context, client *http.Client, place string) (*keySet, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, application/jwk-set+json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", place, resp.Status)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return parseKeys(data)
}

// client is made for each fetch: there are minutes between them, so a kept
// connection would only be in the way, and a renewed ca_file is seen.
func (k *keyring) client() (*http.Client, error) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	if k.caFile != "" {
		pem, err := os.ReadFile(k.caFile)
		if err != nil {
			return nil, fmt.Errorf("auth.oidc.ca_file: %w", err)
		}
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("auth.oidc.ca_file: no certificate in %s; it must be a PEM file", k.caFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: bounded{transport}, CheckRedirect: checkRedirect}, nil
}

// checkRedirect keeps an eavesdropper from answering for the issuer.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 5 {
		return errors.New("more than five redirects")
	}
	if via[0].URL.Scheme == "https" && req.URL.Scheme != "https" {
		return errors.New("a redirect from https to " + req.URL.Scheme)
	}
	return nil
}

const maxDocument = 1 << 20

// bounded cuts answers off that are longer than any document of an issuer.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(resp.Body, maxDocument), resp.Body}
	return resp, nil
}

// brief is an error fit for a log line: some of them have whole web pages in
// them.
func brief(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "..."
	}
	return text
}
