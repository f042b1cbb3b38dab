package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/client"
)

// The trajectories of many are complete with their last line alone.
func TestTrajectories(t *testing.T) {
	const line = `{"type":"call","session":"a","of":"b"}` + "\n"
	for what, tt := range map[string]struct {
		answer string
		steps  int
		says   string
	}{
		"whole":      {line + line + `{"type":"end","sessions":1}` + "\n", 3, ""},
		"broken off": {line + line, 2, "broke off"},
		"empty":      {``, 0, "broke off"},
		"other":      {`{"a":1}`, 0, "check the URL"},
	} {
		var uri string
		c := serve(t, client.Options{}, func(w http.ResponseWriter, r *http.Request) {
			uri = r.RequestURI
			io.WriteString(w, tt.answer)
		})
		n, last := 0, error(nil)
		for _, err := range c.Trajectories(t.Context(), client.SessionQuery{Labels: map[string]string{"a": "b"}, Closed: true, Limit: 3, Owner: "kim"}) {
			if last = err; err == nil {
				n++
			}
		}
		if n != tt.steps || (last == nil) != (tt.says == "") || last != nil && !strings.Contains(last.Error(), tt.says) {
			t.Errorf("%s: %d steps, %v", what, n, last)
		}
		if uri != "/v1/trajectories?closed=true&label=a%3Db&owner=kim" {
			t.Errorf("%s: asked for %s", what, uri)
		}
	}
}
