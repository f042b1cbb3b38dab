package secret

import (
	"strings"
	"testing"
)

func TestMasked(t *testing.T) {
	x := strings.Repeat("0aB", 30)
	for _, token := range []string{"ghp_" + x, "dapi" + strings.Repeat("0a", 16), "AGE-SECRET-KEY-1" + strings.ToUpper(x), "hvs." + x, "glsa_" + x, "lin_api_" + x, "gsk_" + x,
		"shpss_" + x, "tskey-auth-" + x, "pscale_tkn_" + x, "hooks.slack.com/services/T0/B0/" + x, "ops_eyJ" + x, "PMAK-" + x, "eyJhbGciOiJub25lIn0." + x,
		"-----BEGIN OPENSSH PRIVATE KEY-----\n" + x + "\n-----END OPENSSH PRIVATE KEY-----"} {
		if got := Masked("before " + token + " after"); got != "before **** after" {
			t.Errorf("%s: got %q", token, got)
		}
	}
	for in, want := range map[string]string{
		"Server=h;Password=connpass6;":     "Server=h;Password=****;",
		"Data Source=h;User Id=sa;Pwd=v25": "Data Source=h;User Id=sa;Pwd=****",
		"DBPASS=x COMPASS=north":           "DBPASS=**** COMPASS=north",
		"password=a token=b":               "password=**** token=****",
	} {
		if got := Masked(in); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	for _, s := range []string{"", "dapi", "repulsive pul-up", "an api_org_chart", "hooks.slack.com/services/", "r8_x", "gsk_short", "xai-lab"} {
		if got := Masked(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
}
