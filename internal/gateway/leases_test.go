package gateway_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestLeases(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	l := want[api.Lease](t, w, "POST", "/v1/leases", `{"ttl":"1h","labels":{"run":"7"}}`, asAda...)
	if !strings.HasPrefix(l.ID, "lse_") || l.TTL != "1h0m0s" || l.Owner != "ada" || l.Labels["run"] != "7" || l.Expires.Sub(l.Created).Minutes() < 59 {
		t.Errorf("made %+v", l)
	}
	if l := want[api.Lease](t, w, "POST", "/v1/leases", ``, asBob...); l.TTL != "1m0s" {
		t.Errorf("without a body: %+v", l)
	}
	s := w.open(t, `{"lease":"`+l.ID+`"}`, asAda...)
	if s.Lease != l.ID {
		t.Errorf("opened %+v", s)
	}
	// Batches, forks, and forks by the session's own token are under it.
	all, failed := w.batch(t, `{"items":[{"open":{"lease":"`+l.ID+`"}},{"fork":{"session":"`+s.ID+`"}},{"open":{"lease":"lse_nosuch"}}]}`, asAda...)
	if failed != 1 || all[0].Opened.Lease != l.ID || all[1].Forks.Sessions[0].Lease != l.ID || all[2].Status != http.StatusNotFound {
		t.Errorf("a batch: %+v", all)
	}
	if f := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", bearer(s.Token)...); f.Sessions[0].Lease != l.ID {
		t.Errorf("a fork by the session's token: %+v", f)
	}
	if got := want[api.Lease](t, w, "PUT", "/v1/leases/"+l.ID, "", asAda...); got.Sessions != 4 || got.Expires.Before(l.Expires) {
		t.Errorf("renewed %+v", got)
	}
	// It is ada's.
	for _, method := range []string{"PUT", "DELETE"} {
		w.refused(t, http.StatusNotFound, method, "/v1/leases/"+l.ID, "", asBob...)
		w.refused(t, http.StatusForbidden, method, "/v1/leases/"+l.ID, "", asEve...)
		w.refused(t, http.StatusForbidden, method, "/v1/leases/"+l.ID, "", bearer(s.Token)...)
		w.refused(t, http.StatusNotFound, method, "/v1/leases/lse_nosuch", "", asAda...)
	}
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions", `{"lease":"`+l.ID+`"}`, asBob...)
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions", `{"lease":"`+l.ID+`"}`, asOps...)
	w.refused(t, http.StatusForbidden, "POST", "/v1/leases", ``, bearer(s.Token)...)
	for who, n := range map[string]int{asAda[1]: 1, asBob[1]: 1, asEve[1]: 2, asOps[1]: 2} {
		if list := want[api.LeaseList](t, w, "GET", "/v1/leases", "", "Authorization", who); len(list.Leases) != n {
			t.Errorf("%.14s sees %+v", who, list)
		}
	}
	w.restart()
	if n := w.openCount(t, asAda...); n != 4 {
		t.Errorf("after a restart %d sessions are open", n)
	}
	w.gone(t, "/v1/leases/"+l.ID, asAda...)
	if n := w.openCount(t, asAda...); n != 0 {
		t.Errorf("after its end %d sessions are open", n)
	}
	w.refused(t, http.StatusNotFound, "PUT", "/v1/leases/"+l.ID, "", asAda...)
	for _, body := range []string{`{"ttl":"4s"}`, `{"ttl":"25h"}`, `{"ttl":"soon"}`, `{"ttl":60}`, `{"ttl":"-1m"}`, `{"lables":{}}`, `{"labels":{"a b":""}}`} {
		w.refused(t, http.StatusBadRequest, "POST", "/v1/leases", body, asAda...)
	}
	one := w.ask(t, "POST", "/v1/leases", `{}`, key("k", asAda...)...)
	if two := w.ask(t, "POST", "/v1/leases", `{}`, key("k", asAda...)...); string(one.body) != string(two.body) || one.status != http.StatusOK {
		t.Errorf("with a key: %s, %s", one.body, two.body)
	}
}

// A call in a session whose lease has run out is lost, not wrong.
func TestLeaseRunsOutUnderACaller(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	l, err := w.rg.NewLease(t.Context(), "", time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := w.open(t, `{"lease":"`+l.ID+`"}`)
	var e api.Error
	testkit.Eventually(t, "the session is closed", func() bool {
		r := w.do(t, "POST", "/v1/call", `{"tool":"n__add","session":"`+s.ID+`"}`, "Content-Type", "application/json")
		if r.status == http.StatusOK {
			return false
		}
		e = api.Error{}
		decode(t, r.body, &e)
		return r.status == http.StatusGone && e.Server == "" // a call that the end meets names its server
	})
	if e.Kind != api.KindLost || !strings.HasSuffix(e.Message, ": lease") {
		t.Errorf("got %+v", e)
	}
	testkit.Eventually(t, "its end is recorded", func() bool {
		return want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "").Reason == "lease"
	})
}
