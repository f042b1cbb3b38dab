package credential

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"
)

// revoke takes a login's tokens back (RFC 7009). The refresh token takes the
// access tokens with it, so one request is enough.
func (w *Wallet) revoke(ctx context.Context, set *Settings, rec *record) error {
	name := "the revocation endpoint " + shown(rec.Revocation)
	if err := checkEndpoint(rec.Revocation); err != nil {
		return fmt.Errorf("%s %w", name, err)
	}
	hc, err := w.clients.get(set.CAFile)
	if err != nil {
		return err
	}
	form := url.Values{"token": {rec.Access}, "token_type_hint": {"access_token"}}
	if rec.Refresh != "" {
		form = url.Values{"token": {rec.Refresh}, "token_type_hint": {"refresh_token"}}
	}
	c, err := rec.client(set)
	if err != nil {
		return err
	}
	basic := c.secret != "" && c.style != oauth2.AuthStyleInParams
	switch {
	case c.signature != nil:
		if _, err := c.signature.assert(c.id, w.now(), form); err != nil {
			return err
		}
	case !basic:
		form.Set("client_id", c.id)
		if c.secret != "" {
			form.Set("client_secret", c.secret)
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, rec.Revocation, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("%s can't be asked", name)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if basic {
		req.SetBasicAuth(url.QueryEscape(c.id), url.QueryEscape(c.secret))
	}
	resp, err := hc.Do(req)
	if err != nil {
		text, _ := unanswered(err, c.secret, rec.Access, rec.Refresh)
		return fmt.Errorf("%s %s", name, text)
	}
	drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered HTTP %d", name, resp.StatusCode)
	}
	return nil
}
