package access_test

import (
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
)

func TestWords(t *testing.T) {
	who := people(t)
	mine := access.Thing{Owner: "ada", Session: "ses_1"}
	for _, tt := range []struct {
		who           string
		alone, shared bool
	}{
		{"user", true, false}, {"token", true, false}, {"viewer", false, false}, {"operator", true, true}, {"local", true, true},
	} {
		p := who[tt.who]
		if got := access.Hears(p, &mine); got != tt.alone {
			t.Errorf("%s reads what the user's instance wrote: %v", tt.who, got)
		}
		if got := access.Hears(p, nil); got != tt.shared {
			t.Errorf("%s reads what a shared instance wrote: %v", tt.who, got)
		}
		// Who acts in a session is told why its instance failed, and no other's words.
		shared := &api.Error{Server: "seen", Message: "exited", Words: "w-shared"}
		own := &api.Error{Server: "seen", Message: "exited", Words: "w-own", Own: true}
		both := access.Told(p, &api.Error{Message: "2 failed", Causes: []*api.Error{shared, own}})
		for _, e := range []*api.Error{access.Told(p, shared), both, both.Causes[0]} {
			if strings.Contains(e.Message, "w-shared") != tt.shared || e.Words != "" {
				t.Errorf("%s is told %+v", tt.who, e)
			}
		}
		for _, e := range []*api.Error{access.Told(p, own), both, both.Causes[1]} {
			if !strings.Contains(e.Message, "w-own") {
				t.Errorf("%s is told %+v", tt.who, e)
			}
		}
		// An earlier version wrote the words of shared servers into the reason.
		all := access.Damages(p, mine, []api.Damage{
			{Server: "seen", Why: "exited with status 3; its last words: w-old", Kept: api.KeptNothing},
			{Server: "seen~1", Why: "exited with status 4", Words: "w-own", Kept: api.KeptNothing},
			{Server: "hidden", Why: "exited", Kept: api.KeptNothing},
			{Why: "stored data is lost", Kept: api.KeptPart},
		})
		knows := access.Knows(p, "hidden")
		if len(all) != 3 && !knows || len(all) != 4 && knows {
			t.Fatalf("%s sees %+v", tt.who, all)
		}
		if strings.Contains(all[0].Text(), "w-old") != tt.shared || !strings.Contains(all[0].Text(), "exited with status 3") {
			t.Errorf("%s sees of an old damage %s", tt.who, all[0].Text())
		}
		if strings.Contains(all[1].Text(), "w-own") != tt.alone {
			t.Errorf("%s sees of a damage %s", tt.who, all[1].Text())
		}
	}
}
