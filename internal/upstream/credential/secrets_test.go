package credential

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/testkit"
)

// TestSecretsInErrors has endpoints that repeat what they were sent, in every
// way, and searches all that is said for it.
func TestSecretsInErrors(t *testing.T) {
	const secret = "s3cret&robot"
	for name, parrot := range map[string]func(w http.ResponseWriter, r *http.Request){
		"description": func(w http.ResponseWriter, r *http.Request) {
			answer(w, 400, map[string]any{"error": "invalid_request", "error_description": secret + " " + r.PostForm.Encode() + r.Header.Get("Authorization")})
		},
		"long": func(w http.ResponseWriter, r *http.Request) {
			answer(w, 400, map[string]any{"error": "invalid_request", "error_description": strings.Repeat(r.PostForm.Encode()+" "+secret+" ", 500)})
		},
		"code": func(w http.ResponseWriter, r *http.Request) {
			answer(w, 400, map[string]any{"error": secret + r.PostForm.Get("refresh_token")})
		},
		"body": func(w http.ResponseWriter, r *http.Request) { http.Error(w, secret+r.PostForm.Encode(), 400) },
		"broken": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, `{"access_token": %q, "expires_in": %q}`, "access-planted", secret+r.PostForm.Get("refresh_token"))
		},
		"down": func(w http.ResponseWriter, r *http.Request) { http.Error(w, secret+r.PostForm.Encode(), 500) },
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.example/?"+r.PostForm.Encode()+url.QueryEscape(secret), http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.login()
			s.ClientID, s.ClientSecret = "robot", secret
			r.enroll(s, "", "ann")
			start, err := r.Begin(context.Background(), s, "", here)
			if err != nil {
				t.Fatal(err)
			}
			query := r.visit(start, "ann")
			verifier := r.flows.list[0].verifier
			r.peer.do(func() {
				r.peer.token = func(w http.ResponseWriter, req *http.Request) bool { parrot(w, req); return true }
			})
			var said strings.Builder
			tell := func(err error) {
				if err == nil {
					t.Fatal("no error")
				}
				text, _ := json.Marshal(err)
				fmt.Fprintf(&said, "%v\n%+v\n%#v\n%s\n", err, err, err, text)
				if len(err.Error()) > 700 {
					t.Errorf("an error of %d characters", len(err.Error()))
				}
			}
			_, _, err = r.call(r.Wrap(r.robot(), "", r.next), "b")
			tell(err)
			tell(r.Finish(context.Background(), s, start.Flow, "", query))
			r.clock.Advance(59*time.Minute + 30*time.Second)
			r.call(r.Wrap(s, "", r.next), "b")
			testkit.Eventually(t, "the warning", func() bool { return strings.Contains(r.log.String(), "ahead of time") })
			r.clock.Advance(2 * time.Hour)
			_, _, err = r.call(r.Wrap(s, "", r.next), "b")
			tell(err)
			fmt.Fprintf(&said, "%+v\n%v %+v %#v\n", r.State(context.Background(), s, ""), s, s, s)
			text, _ := json.Marshal(s)
			said.Write(text)
			said.WriteString(r.log.String())
			for _, planted := range []string{
				secret, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte("robot:" + url.QueryEscape(secret))),
				"refresh-1", "access-", "code-2", verifier,
			} {
				if i := strings.Index(said.String(), planted); i >= 0 {
					t.Errorf("%q was told: ...%s", planted, said.String()[max(0, i-100):i+len(planted)])
				}
			}
		})
	}
}

// TestSecretsOfRegistration has a registration that fails after the secret was
// told.
func TestSecretsOfRegistration(t *testing.T) {
	for name, body := range map[string]string{
		"broken":  `{"client_id": 7, "client_secret": "planted"}`,
		"no id":   `{"client_secret": "planted"}`,
		"not ok":  `planted`,
		"too odd": `{"error": 3, "x": "planted"}`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			status := http.StatusCreated
			switch name {
			case "not ok":
				status = http.StatusForbidden
			case "too odd":
				status = http.StatusBadRequest
			}
			inner := r.peer.Config.Handler
			r.peer.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path != "/register" {
					inner.ServeHTTP(w, req)
					return
				}
				w.WriteHeader(status)
				w.Write([]byte(body))
			})
			_, err := r.Begin(context.Background(), r.login(), "", here)
			if err == nil || strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "servers.x.auth.client_id") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestScrub(t *testing.T) {
	long := strings.Repeat("é", 300)
	for _, tt := range []struct{ in, want string }{
		{"plain", "plain"},
		{"a\nb\x1b[31mc\u202e", "a b [31mc"},
		{"the secret is p@ss word", "the secret is ***"},
		{"the secret is p%40ss+word", "the secret is ***"},
		{"the secret is p@ss%20word", "the secret is ***"},
		{"the secret is " + base64.StdEncoding.EncodeToString([]byte("p@ss word")), "the secret is ***"},
		{long, strings.Repeat("é", 200) + "..."},
		{strings.Repeat("x", 195) + "p@ss word", strings.Repeat("x", 195) + "***"},
	} {
		if got := scrub(tt.in, "", "p@ss word"); got != tt.want {
			t.Errorf("%q became %q, want %q", tt.in, got, tt.want)
		}
	}
}
