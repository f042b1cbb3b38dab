package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

func TestBatch(t *testing.T) {
	in := api.Batch{Items: []api.BatchItem{{Close: &api.BatchClose{Session: "a"}}, {Open: &api.NewSession{}}}}
	const lines = `{"item":1,"opened":{"id":"ses_b","token":"t"}}` + "\n\n" + `{"item":0,"error":{"kind":"invalid","message":"no"},"status":404}` + "\n"
	for what, tt := range map[string]struct {
		answer string
		failed int
		says   string // of the error
	}{
		"whole":           {lines + `{"done":true,"failed":1}` + "\n", 1, ""},
		"broken off":      {lines, 0, "broke off after 2 of 2 items"},
		"begun":           {`{"item":1,"op`, 0, "not one of a batch"},
		"another program": {`<html>`, 0, "check the URL"},
		"too many":        {`{"item":2,"closed":true}`, 0, "check the URL"},
		"too long":        {`{"item":1,"result":"` + strings.Repeat("x", 300<<10) + `"}`, 0, "larger than the limit"},
	} {
		var sent, key string
		c := serve(t, client.Options{MaxBody: 100 << 10}, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			sent, key = r.URL.Path+" "+string(b), r.Header.Get("Idempotency-Key")
			io.WriteString(w, tt.answer)
		})
		seen := map[int]api.BatchLine{}
		failed, err := c.Batch(t.Context(), in, func(l api.BatchLine) error { seen[*l.Item] = l; return nil }, client.Once("k"))
		if failed != tt.failed || (err == nil) != (tt.says == "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %d failed, %v", what, failed, err)
		}
		if sent != `/v1/batch {"items":[{"close":{"session":"a"}},{"open":{}}]}` || key != "k" {
			t.Errorf("%s: sent %s with key %q", what, sent, key)
		}
		if what == "whole" && (seen[0].Error.Status != 404 || seen[1].Opened.Token != "t") {
			t.Errorf("got %+v", seen)
		}
	}
	c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, lines) })
	stop := errors.New("enough")
	if _, err := c.Batch(t.Context(), in, func(api.BatchLine) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("a listener that fails: %v", err)
	}
}
