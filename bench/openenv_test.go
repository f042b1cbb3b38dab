package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

func TestSelectOpenEnv(t *testing.T) {
	for _, tc := range []struct {
		only []string
		want int
	}{{nil, 1}, {[]string{"openenv"}, 1}, {[]string{"openenv/step"}, 1}, {[]string{"rlm"}, 0}} {
		if got := selectTrials(openEnvTrials(), tc.only); len(got) != tc.want {
			t.Errorf("%v selects %d rows, want %d", tc.only, len(got), tc.want)
		}
	}
}

// TestEpisodeCaller holds that a step with another text than it asked for is an error.
func TestEpisodeCaller(t *testing.T) {
	answers := []string{"{}", "%s", "%s", "other"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		for i := 0; ; i++ {
			_, b, err := c.Read(context.Background())
			if err != nil {
				return
			}
			answer := "{}"
			if _, text, ok := strings.Cut(string(b), `"text":"`); ok {
				text, _, _ = strings.Cut(text, `"`)
				if strings.Contains(answers[i], "%s") {
					answers[i] = fmt.Sprintf(answers[i], text)
				}
				answer = fmt.Sprintf(`{"data":{"observation":{"result":{"content":[{"text":%q}]}}}}`, answers[i])
			}
			if c.Write(context.Background(), websocket.MessageText, []byte(answer)) != nil {
				return
			}
		}
	}))
	defer server.Close()
	all, err := dialEpisodes(t.Context(), server.URL, 1, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(all)
	if err := all[0].call(t.Context(), 7); err != nil {
		t.Error(err)
	}
	if err := all[0].call(t.Context(), 8); err == nil || !strings.Contains(err.Error(), "step 8 is answered with") {
		t.Errorf("another text: %v", err)
	}
}
