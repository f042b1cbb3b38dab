package config

import (
	"strings"
	"testing"
)

// TestSecretsByForm writes secrets into places whose names say nothing: none is shown,
// and each is known, so that it is masked wherever a server repeats it.
func TestSecretsByForm(t *testing.T) {
	const key = "-----BEGIN EC PRIVATE KEY-----\\nMHcCAQEEIDo7vlXabcdefghijkl\\noAoGCCqGSM49AwEHmnopqrst\\n-----END EC PRIVATE KEY-----\\n"
	c := mustParse(t, `servers:
  prog:
    command: run
    args:
      - "`+key+`"
      - "--cert=`+key+`"
      - next-argument
      - "Server=h;Password=connpass6;Database=d"
      - --conn
      - "Server=h;Pwd=connpwd77"
    env:
      PEM: "`+key+`"
      DBPASS: dbpass02value
      SMTPPASS: smtppass02value
      JWT: jwt-by-its-name
      PLACE: https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX
      CONN: "Host=h;Username=u;Password=envconnpass;Timeout=5"
      COMPASS: north-by-northwest
  box:
    title: "x ghp_0123456789abcdefABCDEF0123456789abcd"
    docker:
      image: i
      command: ["`+key+`"]
      run_args: [-e, DBPASS=runargsecret66, -e, "CONN=User=u;Pwd=runargpwd66;"]
      labels: {note: "`+key+`"}
  set: {builtin: fetch, settings: {note: "`+key+`", deep: [{conn: "a=b;Password=settingpass"}]}}
`, noEnv())
	secrets := strings.Join(c.Secrets(), "\n")
	shown := string(Marshal(c))
	for i := range c.Servers {
		shown += c.Servers[i].Target() + "\n"
	}
	for _, s := range []string{"MHcCAQEEIDo7vlXabcdefghijkl", "oAoGCCqGSM49AwEHmnopqrst", "connpass6", "connpwd77", "dbpass02value", "smtppass02value",
		"jwt-by-its-name", "XXXXXXXXXXXXXXXXXXXXXXXX", "envconnpass", "ghp_0123456789", "runargsecret66", "runargpwd66", "settingpass"} {
		if strings.Contains(shown, s) {
			t.Errorf("%s is shown in\n%s", s, shown)
		}
		if !strings.Contains(secrets, s) && !strings.HasPrefix(s, "ghp_") {
			t.Errorf("%s is not among the secrets", s)
		}
	}
	for _, s := range []string{"next-argument", "Server=h;Password=****;Database=d", "Host=h;Username=u;Password=****;Timeout=5", "north-by-northwest", "--cert=****"} {
		if !strings.Contains(shown, s) {
			t.Errorf("%s is not shown in\n%s", s, shown)
		}
	}
}

// A message quotes what was written, as far as that is no secret.
func TestMessagesQuoteNoSecret(t *testing.T) {
	_, err := Parse([]byte(`listen: "-----BEGIN PRIVATE KEY-----MIIEvQIBADANBgkq"`), noEnv())
	if err == nil || strings.Contains(err.Error(), "MIIE") {
		t.Errorf("got %v", err)
	}
}
