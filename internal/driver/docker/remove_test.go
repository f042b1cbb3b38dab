package docker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/moby/moby/client"
)

// TestRemoveTagOfGoneImage removes a tag of an image that another client removes at the
// same time. The tag is gone in the end, or there is an error.
func TestRemoveTagOfGoneImage(t *testing.T) {
	const internal, missing = http.StatusInternalServerError, http.StatusNotFound
	for name, test := range map[string]struct {
		status  int
		says    string
		left    bool // the tag is there after the first try
		removes int
		works   bool
	}{
		"Docker 20.10":               {internal, "unrecognized image ID sha256:a39f", false, 1, true},
		"Docker 20.10, the tag left": {internal, "unrecognized image ID sha256:a39f", true, 2, true},
		"not found":                  {missing, "No such image: localhost/tine-a:b", false, 1, true},
		"not found, the tag left":    {missing, "image not known", true, 2, true},
		"another failure":            {internal, "the disk is full", true, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			there, removes := true, 0
			ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				say := func(status int, text string) {
					w.WriteHeader(status)
					fmt.Fprintf(w, `{"message":%q}`, text)
				}
				switch {
				case strings.HasSuffix(r.URL.Path, "/_ping"):
					w.Header().Set("Api-Version", "1.44")
				case r.Method == http.MethodDelete:
					if removes++; removes == 1 {
						there = test.left
						say(test.status, test.says)
						return
					}
					there = false
					fmt.Fprint(w, `[]`)
				case there:
					fmt.Fprint(w, `{"Id":"sha256:a39f"}`)
				default:
					say(missing, "no such image")
				}
			}))
			defer ts.Close()
			cli, err := client.New(client.WithHost("tcp://" + ts.Listener.Addr().String()))
			if err != nil {
				t.Fatal(err)
			}
			defer cli.Close()
			err = (&engine{cli: cli}).removeTag(t.Context(), "localhost/tine-a:b")
			if (err == nil) != test.works || removes != test.removes || test.works && there {
				t.Errorf("%d removals, %v; the tag is there: %v", removes, err, there)
			}
		})
	}
}
