package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
)

// oneKey is the key of RFC 8037, appendix A.
const oneKey = `{"kty":"OKP","crv":"Ed25519","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}`

func TestServerAuthErrors(t *testing.T) {
	auth := func(a string) string { return "servers:\n  a:\n    url: http://x\n    auth: {" + a + "}\n" }
	testErrors(t, []wrongConfig{
		{"of a command", "servers:\n  a: {command: npx, auth: {type: login}, credential: shared}\n",
			`tine.yaml:2:21: servers.a.auth: goes with url or remote, but this server has a command
tine.yaml:2:42: servers.a.credential: goes with url, but this server has a command`},
		{"no map", "servers:\n  a: {url: 'http://x', auth: login, credential: per-principal}\n",
			`tine.yaml:2:30: servers.a.auth: want a map of type, token_url, auth_url, client_id, client_secret, private_key, issuer, client_metadata_url, scopes, audience, resource, redirect, got a string`},
		{"no type", auth("client_id: x"),
			`tine.yaml:4:11: servers.a.auth: type is missing; write type: client_credentials or type: login`},
		{"type", auth("type: oauth"),
			`tine.yaml:4:18: servers.a.auth.type: got "oauth", want client_credentials or login`},
		{"nothing of what it needs", auth("type: client_credentials"),
			`tine.yaml:4:11: servers.a.auth: client_id is missing, which type client_credentials needs
tine.yaml:4:11: servers.a.auth: client_secret or private_key is missing, which type client_credentials needs`},
		{"keys of a login", auth("type: client_credentials, token_url: 'https://x', client_id: a, client_secret: b, auth_url: 'https://x', redirect: 'http://localhost'"),
			`tine.yaml:4:94: servers.a.auth.auth_url: goes with type login, but this is client_credentials
tine.yaml:4:117: servers.a.auth.redirect: goes with type login, but this is client_credentials`},
		{"half of the urls", auth("type: login, token_url: 'https://x'"),
			`tine.yaml:4:11: servers.a.auth: auth_url and token_url belong together; give both, or none to have them found`},
		{"secret without a client", auth("type: login, client_secret: b"),
			`tine.yaml:4:11: servers.a.auth: client_secret without client_id; give both or none`},
		{"key without a client", auth("type: login, private_key: '" + oneKey + "'"),
			`tine.yaml:4:11: servers.a.auth: private_key without client_id or client_metadata_url; add one of them, or remove private_key`},
		{"key and secret", auth("type: client_credentials, client_id: a, client_secret: b, private_key: '" + oneKey + "'"),
			`tine.yaml:4:11: servers.a.auth: private_key and client_secret exclude each other; remove one`},
		{"key for no issuer", auth("type: client_credentials, client_id: a, token_url: 'https://x', private_key: '" + oneKey + "'"),
			`tine.yaml:4:11: servers.a.auth: issuer is missing, which private_key needs beside token_url`},
		{"issuer that is found", auth("type: client_credentials, client_id: a, issuer: 'https://x', private_key: '" + oneKey + "'"),
			`tine.yaml:4:11: servers.a.auth: issuer goes with token_url, without which the server's metadata names it; add that, or remove issuer`},
		{"issuer without a key", auth("type: client_credentials, client_id: a, client_secret: b, token_url: 'https://x', issuer: 'https://x'"),
			`tine.yaml:4:11: servers.a.auth: issuer goes with private_key; add that, or remove issuer`},
		{"no key", auth("type: client_credentials, client_id: a, private_key: hunter2"),
			`tine.yaml:4:65: servers.a.auth.private_key: is neither a private key in PEM nor a JWK; write it like ${file:tine-key.pem}`},
		{"public key", auth(`type: client_credentials, client_id: a, private_key: '{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}'`),
			`tine.yaml:4:65: servers.a.auth.private_key: is no private key; a public or a symmetric one can't sign`},
		{"document of a machine", auth("type: client_credentials, client_id: a, client_secret: b, client_metadata_url: 'https://x/y'"),
			`tine.yaml:4:70: servers.a.auth.client_metadata_url: goes with type login, but this is client_credentials`},
		{"document and client", auth("type: login, client_id: a, client_metadata_url: 'https://x/y'"),
			`tine.yaml:4:39: servers.a.auth.client_metadata_url: is not used where client_id is given; remove one`},
		{"document unasked", auth("type: login, client_metadata_url: 'https://x/y', auth_url: 'https://x', token_url: 'https://x'"),
			`tine.yaml:4:25: servers.a.auth.client_metadata_url: is used where the authorization server's metadata says that it can be, which is not read where token_url is given; write client_id with this URL instead`},
		{"document in the clear", auth("type: login, client_metadata_url: 'http://127.0.0.1/y'"),
			`tine.yaml:4:46: servers.a.auth.client_metadata_url: "http://127.0.0.1/y" is not an https URL with a path and without user, query and fragment; write it like https://tine.example.org/client.json`},
		{"document without a path", auth("type: login, client_metadata_url: 'https://x/'"),
			`tine.yaml:4:46: servers.a.auth.client_metadata_url: "https://x/" is not an https URL with a path and without user, query and fragment; write it like https://tine.example.org/client.json`},
		{"document around a corner", auth("type: login, client_metadata_url: 'https://x/a/../y'"),
			`tine.yaml:4:46: servers.a.auth.client_metadata_url: "https://x/a/../y" is not an https URL with a path and without user, query and fragment; write it like https://tine.example.org/client.json`},
		{"urls", auth("type: login, token_url: 'http://x/t', auth_url: '//x', resource: x, redirect: 'https://me.example.org'"),
			`tine.yaml:4:36: servers.a.auth.token_url: "http://x/t" would be spoken to unencrypted; use https, as plain http is for loopback addresses alone
tine.yaml:4:60: servers.a.auth.auth_url: "//x" is not an absolute https URL; write it like https://login.example.org/oauth/authorize
tine.yaml:4:77: servers.a.auth.resource: "x" is not an absolute URL without a fragment; write it like https://mcp.example.org/mcp
tine.yaml:4:90: servers.a.auth.redirect: "https://me.example.org" is not an http URL on a loopback address, where Tine waits for the person; write it like http://127.0.0.1:8765/callback`},
		{"user in a url", auth("type: login, auth_url: 'https://a:b@x', token_url: 'https://x'"),
			`tine.yaml:4:35: servers.a.auth.auth_url: must be a URL without user and fragment; write it like https://login.example.org/oauth/authorize`},
		{"scopes", auth("type: login, scopes: 'a b a'"),
			`tine.yaml:4:33: servers.a.auth.scopes: "a" stands twice`},
		{"two tokens", "servers:\n  a:\n    url: http://x\n    headers: {authorization: x}\n    auth: {type: login}\n",
			`tine.yaml:5:5: servers.a.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth`},
		{"login of each without a login", "servers:\n  a:\n    url: http://x\n    credential: per-principal\n",
			`tine.yaml:4:5: servers.a.credential: per-principal goes with auth: {type: login}, as only a person can log in; add that, or write credential: shared`},
		{"login of each by machine", auth("type: client_credentials, token_url: 'https://x', client_id: a, client_secret: b") + "    credential: per-principal\n",
			`tine.yaml:5:5: servers.a.credential: per-principal goes with auth: {type: login}, as only a person can log in; add that, or write credential: shared`},
	})
}

// A variable that is missing takes its server out and is no error of the file.
func TestServerAuthWithoutItsSecret(t *testing.T) {
	c := mustParse(t, `servers:
  a:
    url: https://x
    auth: {type: client_credentials, token_url: "${URL}", client_id: "${ID}", client_secret: "${SECRET}"}
  b: {url: "https://x", auth: {type: "${TYPE}"}, credential: per-principal}
  c: {url: "https://x", auth: {type: login, auth_url: "${URL}", token_url: "https://x"}}
  d: {url: "https://x", auth: {}}
`, noEnv())
	for _, id := range []string{"a", "b", "c"} {
		if s := serverOf(t, c, id); !strings.Contains(s.Disabled, "is not set (auth.") {
			t.Errorf("%s: %q", id, s.Disabled)
		}
	}
	if s := serverOf(t, c, "d"); s.Disabled != "" || s.Auth.Type != "" {
		t.Errorf("auth without keys: %+v", s)
	}
}

// A key file that holds no key switches its server off, and no other.
func TestServerAuthKeyThatIsNone(t *testing.T) {
	opts := noEnv()
	opts.ReadFile = func(string) ([]byte, error) { return []byte("half a key"), nil }
	c := mustParse(t, `servers:
  a: {url: "https://x", auth: {type: client_credentials, client_id: a, token_url: "https://x", issuer: "https://x", private_key: "${file:key.pem}"}}
  b: {url: "https://x"}
`, opts)
	if s := serverOf(t, c, "a"); s.Disabled != `server "a" is off: the private key is neither a private key in PEM nor a JWK (auth.private_key); mend what the placeholder names` {
		t.Errorf("it is off because %q", s.Disabled)
	}
	if s := serverOf(t, c, "b"); s.Disabled != "" || len(c.Warnings) != 1 {
		t.Errorf("the other one: %q, warnings %q", s.Disabled, c.Warnings)
	}
}

// A key in a file is a secret in every form in which it may come back.
func TestServerAuthKey(t *testing.T) {
	text, line := pemKey(t)
	opts := noEnv()
	opts.ReadFile = func(string) ([]byte, error) { return []byte(text), nil }
	c := mustParse(t, `servers:
  a: {url: "https://x", auth: {type: client_credentials, client_id: a, private_key: "${file:key.pem}"}}
`, opts)
	s := serverOf(t, c, "a")
	key, err := SigningKey(s.Auth.PrivateKey)
	if err != nil || key.Algorithm != "ES256" {
		t.Fatalf("%v %v", key, err)
	}
	if !slices.Contains(s.Secrets(), line) {
		t.Error("a line of the key is no secret")
	}
	if shown := string(Marshal(c)); strings.Contains(shown, line) || !strings.Contains(shown, `private_key: "****"`) {
		t.Errorf("it is shown as\n%s", shown)
	}
	// Who sets an address at run time need not know the key.
	for _, key := range []string{"token_url", "issuer"} {
		_, _, err := s.With(json.RawMessage(`{"auth": {"` + key + `": "https://y"}}`))
		if err == nil || !strings.Contains(err.Error(), "the private key of the config is not sent to an address") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Keys that an authorization server would not take, or that can't sign, are refused
// when the config is read.
func TestSigningKey(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(small)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ text, want string }{
		"small":         {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "less than 2048 bits"},
		"encrypted":     {string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("hunter2")})), "is encrypted; decrypt it with"},
		"old encrypted": {string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: []byte("hunter2")})), "is encrypted"},
		"openssh":       {string(pem.EncodeToMemory(&pem.Block{Type: "OPENSSH PRIVATE KEY", Bytes: []byte("hunter2")})), "ssh-keygen -p -m PKCS8"},
		"public":        {string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("hunter2")})), "is a public key"},
		"certificate":   {string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("hunter2")})), "is a certificate"},
		"damaged":       {string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("hunter2")})), "can't be read"},
		"curve":         {secp256k1Key, "is a key on a curve"},
		"symmetric":     {`{"kty":"oct","k":"aHVudGVyMg"}`, "is no"},
		"broken":        {`{"kty":"EC","d":"hunter2"}`, "is no JWK"},
		"algorithm":     {strings.Replace(oneKey, "{", `{"alg":"ES256",`, 1), "signs with none of"},
		"nothing":       {"", "neither"},
	} {
		if _, err := SigningKey(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// secp256k1Key is of a curve that Go does not know.
const secp256k1Key = "-----BEGIN EC PRIVATE KEY-----\nMHQCAQEEIDUoxCXE5Kw1t1nQpIl3JeCQpdk45TM/L0Y3Y98qgWHroAcGBSuBBAAK\noUQDQgAE9QZse+kBcR+DHD9mzbCZRnfKc1TElZz70szmHepIRSzTTyZ5+mOcpqvj\n1mondqoRMbzMDoFxHp8BgQZ27d7z+A==\n-----END EC PRIVATE KEY-----"

// openssl ecparam writes the parameters of the curve before the key.
func TestSigningKeyAfterParameters(t *testing.T) {
	text, _ := pemKey(t)
	parameters := string(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 8, 42, 134, 72, 206, 61, 3, 1, 7}}))
	if _, err := SigningKey(parameters + text); err != nil {
		t.Error(err)
	}
}

// A mistake is told once: what was mistyped is not missing as well, and a port that can't
// be read is still one.
func TestOneMistakeOneProblem(t *testing.T) {
	for in, want := range map[string]string{
		"{url: 'https://x', auth: {type: client_credentials, client_id: a, privat_key: b}}": `unknown key "privat_key" in servers.a.auth; did you mean "private_key"?`,
		"{remote: {url: 'https://x', resourse: y}}":                                         `unknown key "resourse" in servers.a.remote; did you mean "resource"?`,
		"{remote: {ulr: 'https://x', resource: y}}":                                         `unknown key "ulr" in servers.a.remote; did you mean "url"?`,
		"{docker: {image: x, port: 70000}}":                                                 "servers.a.docker.port: 70000 is out of range; want 1 to 65535",
		"{docker: {image: x, port: '80:80'}}":                                               `servers.a.docker.port: got "80:80", want a whole number from 1 to 65535`,
		"{docker: {image: x, host: 'tcp://h'}}":                                             `servers.a.docker.host: "tcp://h" is not an engine's address; write it like unix:///var/run/docker.sock or tcp://engine.example.org:2376`,
		"{docker: {image: x, host: 'http://h'}}":                                            `servers.a.docker.host: "http://h" is not an engine's address; write it like unix:///var/run/docker.sock or tcp://engine.example.org:2376`,
	} {
		_, err := Parse([]byte("servers: {a: "+in+"}"), noEnv())
		if err == nil || !strings.HasSuffix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got\n%v\nwant one problem\n%s", in, err, want)
		}
	}
}

// pemKey makes a key, and returns one line of it too.
func pemKey(t *testing.T) (text, line string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text = string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	return text, strings.Split(text, "\n")[1]
}
