package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestExecRefused holds who may run commands where, and what is said to others. No server
// is started for it.
func TestExecRefused(t *testing.T) {
	t.Parallel()
	w := openWorldsWith(t, teamYAML+`  rules:
    - {principals: [ada, ops], exec: [n, "x*"], role: user}
    - {principals: [bob]}
`, nil)
	s := w.open(t, `{}`, asAda...)
	mine := w.open(t, `{}`, asBob...)
	at := func(s api.OpenedSession) string { return "/v1/sessions/" + s.ID + "/exec" }
	for _, tt := range []struct {
		name   string
		status int
		path   string
		body   string
		who    []string
		says   string
	}{
		{"built in", http.StatusConflict, at(s), `{"server":"n","argv":["ls"]}`, asAda, "built into the gateway"},
		{"no rule", http.StatusForbidden, at(mine), `{"server":"n","argv":["ls"]}`, asBob, "exec: [n]"},
		{"no server", http.StatusBadRequest, at(s), `{"server":"x","argv":["ls"]}`, asAda, `no server "x"`},
		{"not theirs", http.StatusNotFound, at(s), `{"server":"n","argv":["ls"]}`, asBob, "no session"},
		{"the session's token", http.StatusForbidden, at(s), `{"server":"n","argv":["ls"]}`, bearer(s.Token), "its owner"},
		{"no program", http.StatusBadRequest, at(s), `{"server":"n","argv":[]}`, asAda, "argv"},
		{"a zero byte", http.StatusBadRequest, at(s), `{"server":"n","argv":["a\u0000b"]}`, asAda, "zero byte"},
		{"a variable", http.StatusBadRequest, at(s), `{"server":"n","argv":["a"],"env":{"A=B":"c"}}`, asAda, "no variable"},
		{"a timeout", http.StatusBadRequest, at(s), `{"server":"n","argv":["a"],"timeout":"-1s"}`, asAda, "timeout"},
		{"two inputs", http.StatusBadRequest, at(s), `{"server":"n","argv":["a"],"stdin":"a","stdin64":"YQ=="}`, asAda, "both"},
		{"too many words", http.StatusBadRequest, at(s), `{"server":"n","argv":["` + strings.Repeat("a", 200<<10) + `"]}`, asAda, "use stdin"},
		{"an unknown key", http.StatusBadRequest, at(s), `{"server":"n","argv":["a"],"shell":true}`, asAda, "shell"},
	} {
		if e := w.refused(t, tt.status, "POST", tt.path, tt.body, tt.who...); !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %+v", tt.name, e)
		}
	}
}

// TestExecWithoutWalls holds that without rules a user runs nothing as the gateway's own
// user.
func TestExecWithoutWalls(t *testing.T) {
	t.Parallel()
	w := &worlds{world: open(t, teamYAML+"servers:\n  p: {command: cat}\n")}
	w.doc = readOpenAPI(t, w.world, "Authorization", "Bearer "+operator)
	s := w.open(t, `{}`, asAda...)
	e := w.refused(t, http.StatusForbidden, "POST", "/v1/sessions/"+s.ID+"/exec", `{"server":"p","argv":["true"]}`, asAda...)
	if !strings.Contains(e.Message, "without walls") || !strings.Contains(e.Message, "exec: [p]") {
		t.Errorf("ada is told %+v", e)
	}
}
