package telemetry

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJlLW9mLWl0"

func TestTextMasksForms(t *testing.T) {
	pem := "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nIBAAKC\n-----END RSA PRIVATE KEY-----"
	for _, tt := range []struct{ in, want string }{
		{"use sk-proj-abc123DEF456 now", "use **** now"},
		{"ghp_0123456789abcdefABCDEF0123456789abcd", "****"},
		{"x github_pat_11ABCDEFG0_abcdefghijk y", "x **** y"},
		{"glpat-abcdefgh12345678.", "****"},
		{"(xoxb-123456789012-abcdef)", "(****)"},
		{"id AKIAIOSFODNN7EXAMPLE.", "id ****."},
		{"AIzaSyA-0123456789_0123456789abcdefghi", "****"},
		{"new token tine_0123456789abcdefghij-_ABCDEFGHIJ0123456789ab", "new token ****"},
		{"got " + jwt + ".", "got ****."},
		{"curl -H 'Authorization: Bearer abc.def'", "curl -H 'Authorization: ****'"},
		{"header Bearer s3cr3t/+x=", "header Bearer ****"},
		{"Basic dXNlcjpwYXNz", "Basic ****"},
		{"BEARER x", "BEARER ****"},
		{"a\n" + pem + "\nb", "a\n****\nb"},
		{strings.ReplaceAll(pem, "\n", `\n`), "****"},
		{pem[:40], "****"},
		{"dial postgres://app:p%40ss@db:5432/x?sslmode=off", "dial postgres://****@db:5432/x?sslmode=off"},
		{"postgres://app:p/a:ss@db/x", "postgres://****@db/x"},
		{"git clone https://tok3n@example.org/x", "git clone https://****@example.org/x"},
		{"GET https://h/p?a=1&api_key=abc&b=2", "GET https://h/p?a=1&api_key=****&b=2"},
		{"https://h/p?X-Amz-Signature=abcdef&x=1#f", "https://h/p?X-Amz-Signature=****&x=1#f"},
		{"https://h/cb?code=0123456789abcdef0&state=s", "https://h/cb?code=****&state=s"},
		{"https://h/p?access_token=abc#frag", "https://h/p?access_token=****#frag"},
		{"password=hunter2", "password=****"},
		{"it failed: password: hunter was wrong", "it failed: password: **** was wrong"},
		{"api_key: abcdef", "api_key: ****"},
		{"  client-secret: a b c\nnext: 1", "  client-secret: ****\nnext: 1"},
		{"Server=db;Password=a,b;c;Database=x", "Server=db;Password=****;Database=x"},
		{`{"password": "a\"b", "x": 1`, `{"password": "****", "x": 1`},
		{`say "{\"token\":\"a\\\"b\",\"x\":1}" end`, `say "{\"token\":\"****\",\"x\":1}" end`},
		{`{"apiKey":"cut off`, `{"apiKey":"****`},
		{"tool --token abc --verbose", "tool --token **** --verbose"},
		{"tool --auth-token=abc x", "tool --auth-token=**** x"},
		{`export OPENAI_KEY="abc"; env['DB_PASS'] = 'x y'`, `export OPENAI_KEY="****"; env['DB_PASS'] = '****'`},
		{"Cookie: a=b; c=d\r\nHost: h", "Cookie: ****\r\nHost: h"},
		{"auth=Bearer abc next", "auth=Bearer ****"[:5] + "**** next"},
		{"<password>abc</password>", "<password>****</password>"},
		{"map[Token:abc Name:x]", "map[Token:**** Name:x]"},
		{`{"credentials": {"user": "u", "n": 12}, "x": 1.0}`, `{"credentials": {"user": "****", "n": "****"}, "x": 1.0}`},
		{"password%3Dabc%26x", "password%3D****"},
		{"write ${DB_PASSWORD:-hunter2}, ${DB_PASSWORD:-defaulted} or DB_PASSWORD:-default}", "write ${DB_PASSWORD:****}, ${DB_PASSWORD:****} or DB_PASSWORD:****}"},
		{"AccountKey=abc==;Suffix=x", "AccountKey=****;Suffix=x"},
		{"x: private_key: hunter2 is bad", "x: private_key: **** is bad"},
		{"x: app.private_key: hunter2", "x: app.private_key: ****"},
		{"x: app.db.password: hunter was wrong", "x: app.db.password: **** was wrong"},
		{"app.db.passphrase: correct horse battery staple", "app.db.passphrase: ****"},
		{"x: app.auth.token: Zm9vYmFy is not valid", "x: app.auth.token: **** is not valid"},
		{"token=${A}b password: ${P:-hunter2}", "token=**** password: ****}"},
		{`api_key: "${KEY}x" key`, `api_key: "****" key`},
		{"x: credentials: {user:bob}", "x: credentials: ****}"},
		{"x: credentials: {user: bob, password: abc}", "x: credentials: {user: bob, password: ****}"},
	} {
		if got := NewRedactor().Text(tt.in); got != tt.want {
			t.Errorf("Text(%q)\n got %q\nwant %q", tt.in, got, tt.want)
		}
	}
}

func TestTextKeepsTheRest(t *testing.T) {
	r := NewRedactor()
	r.Set([]string{"the-known-value", "abc", "****", ""})
	for _, s := range []string{
		"", "a", "ab", "abc", "plain words and 12345678901234567890",
		"max_tokens=512 token_count: 7 token_file=/etc/x password_file: /run/p",
		"invalid token: expired", "the token is missing: log in", "a secret: nobody knows",
		"bearer of news; Bearer token; basic auth; Basic usage; task-12345678901",
		`WWW-Authenticate: Bearer realm="x", error="invalid_token"`,
		"http://127.0.0.1:8080/mcp@x", "ssh://git@example.org/x", "https://example.org/a?b=c&max_tokens=4",
		"cursor eyJvZmZzZXQiOjEwfQ and key: value, sort_key=name keys=3",
		"----------------", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"variable GH_TOKEN is not set (headers.Authorization); set it, or write ${GH_TOKEN:-default}; more", "${API_KEY:-default}",
		"usage: tool --file F <token> more words", "PWD=/home/me", `{"tokens": 512, "passes": 3}`,
		"servers.ec.auth: private_key and client_secret exclude each other; remove one", "api_key: must not be empty",
		`write private_key: "${file:tine-key.pem}", token: ${TOKEN}, or API_KEY=${API_KEY}.`,
		"tine_call_duration_seconds_bucket{server=x} 1", "author: someone; monkey: banana", "token=null password: nil", "SK-8 and sk-learn", "\xff\xfe broken \x00 bytes",
	} {
		if got := r.Text(s); got != s {
			t.Errorf("Text(%q) = %q, want it unchanged", s, got)
		}
	}
}

func TestJSON(t *testing.T) {
	r := NewRedactor()
	r.Set([]string{"hun\"ter\\2", "9007199254740993"})
	for _, tt := range []struct{ name, in, want string }{
		{"untouched", ` { "a" : 12345678901234567890.10e+3 , "\u0061":"\u00e9\/" , "b":[true,null,{}] } `, ""},
		{"by name", `{"password":"x","apiKey" : "y","Authorization":["Bearer a",{"b":1}],"max_tokens":5,"n":1.0}`,
			`{"password":"****","apiKey" : "****","Authorization":["****",{"b":"****"}],"max_tokens":5,"n":1.0}`},
		{"escaped name", `{"pass\u0077ord":"x"}`, `{"pass\u0077ord":"****"}`},
		{"literals and empty stay", `{"password":null,"token":true,"secret":""}`, ""},
		{"numbers", `{"token":123,"tokens":123,"db_key":7}`, `{"token":"****","tokens":123,"db_key":7}`},
		{"tokens as text", `{"tokens":["a","b"]}`, `{"tokens":["****","****"]}`},
		{"inside text", `["see ghp_0123456789abcdef ok\n"]`, `["see **** ok\n"]`},
		{"rest of an escaped text", `["\u00e9 \ud83d\ude00 \/ password=\"x y\" \u00e9"]`, `["\u00e9 \ud83d\ude00 \/ password=\"****\" \u00e9"]`},
		{"JSON in a string", `{"text":"{\"password\":\"x\",\"token\":1,\"n\":10000000000000000001}"}`,
			`{"text":"{\"password\":\"****\",\"token\":\"****\",\"n\":10000000000000000001}"}`},
		{"JSON in JSON in a string", `["[\"{\\\"token\\\":12}\"]"]`, `["[\"{\\\"token\\\":\\\"****\\\"}\"]"]`},
		{"in a key", `{"ghp_0123456789abcdef":1}`, `{"****":1}`},
		{"known", `{"a":"-hun\"ter\\2-","b":"hun\u0022ter\u005c2","c":9007199254740993,"d":90071992547409930}`,
			`{"a":"-****-","b":"****","c":"****","d":"****"}`},
		{"name and value", `[{"name":"API_TOKEN","value":"x"},{"value":"y","key":"DB_PASSWORD"},{"name":"color","value":"red"}]`,
			`[{"name":"API_TOKEN","value":"****"},{"value":"****","key":"DB_PASSWORD"},{"name":"color","value":"red"}]`},
		{"arguments", `["--token","abc","--file","x","--password","--x"]`, `["--token","****","--file","x","--password","--x"]`},
		{"schema", `{"properties":{"password":{"type":"string","default":"x"}}}`, `{"properties":{"password":{"type":"string","default":"****"}}}`},
		{"no schema", `{"properties":{"password":"x"}}`, `{"properties":{"password":"****"}}`},
		{"progress token", `{"_meta":{"progressToken":"p1","traceparent":"00-x"}}`, ""},
		{"scalar", `"Bearer abc1"`, `"Bearer ****"`},
		{"no JSON", `{"password":"x"`, `{"password":"****"`},
		{"two documents", "{\"token\":\"x\"}\n{}", "{\"token\":\"****\"}\n{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				tt.want = tt.in
			}
			if got := string(r.JSON([]byte(tt.in))); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// encodings are ways in which a value may stand in a text.
var encodings = map[string]func(string) string{
	"plain":   func(s string) string { return s },
	"json":    func(s string) string { b, _ := json.Marshal(s); return string(b[1 : len(b)-1]) },
	"json2":   func(s string) string { b, _ := json.Marshal(s); c, _ := json.Marshal(string(b)); return string(c) },
	"ascii":   func(s string) string { q := strconv.QuoteToASCII(s); return q[1 : len(q)-1] },
	"units":   func(s string) string { return everyByte(s, `\u%04x`) },
	"query":   url.QueryEscape,
	"path":    url.PathEscape,
	"percent": func(s string) string { return everyByte(s, "%%%02x") },
	"twice":   func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
	"std":     func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"raw url": func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) },
	"basic":   func(s string) string { return base64.StdEncoding.EncodeToString([]byte("u:" + s + "!")) },
	"basic 1": func(s string) string { return base64.URLEncoding.EncodeToString([]byte("x" + s)) },
}

func everyByte(s, format string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 0x80 {
			return s // not the same text for every format
		}
		fmt.Fprintf(&b, format, c)
	}
	return b.String()
}

func TestKnownValuesInEveryEncoding(t *testing.T) {
	for _, secret := range []string{"hunter2!", "a b/c+d=e&f\"g\\h", "pässwörd <&> 1", "line one is long enough\nline two too, for sure", "abcd"} {
		r := NewRedactor()
		r.Set([]string{"other-value", secret})
		for name, enc := range encodings {
			coded := enc(secret)
			for _, around := range []string{"%s", "before %s after", "x=%s&y", `{"a":"%s"}`, `\\%s\\`} {
				in := fmt.Sprintf(around, coded)
				got := r.Text(in)
				if strings.Contains(got, coded) || !strings.Contains(got, mask) {
					t.Errorf("%q as %s: Text(%q) = %q", secret, name, in, got)
				}
			}
		}
	}
}

// What was a secret stays one, since what was written down then is shown later.
func TestSetAddsToWhatWasSecret(t *testing.T) {
	r := NewRedactor()
	for _, secrets := range [][]string{{"first-value"}, {"second-value"}, nil} {
		r.Set(secrets)
	}
	r.Learn("third-value")
	r.Learn("")
	r.Set([]string{"fourth-value"})
	if got, want := r.Text("first-value second-value third-value fourth-value fifth-value"), "**** **** **** **** fifth-value"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// As many as may come, only the newest are kept.
	for i := range 300 {
		r.Learn(fmt.Sprintf("learned-value-%d", i))
	}
	if got := r.Text("learned-value-299 fourth-value first-value"); got != "**** **** first-value" {
		t.Errorf("after many: %q", got)
	}
}

func TestOverlappingKnownValues(t *testing.T) {
	r := NewRedactor()
	r.Set([]string{"abcd", "abcdefgh", "ghij", "ijkl"})
	if got := r.Text("-abcdefghijklm-"); got != "-****m-" {
		t.Errorf("got %q", got)
	}
}

// TestLongTexts plants values around every border that pieces may have.
func TestLongTexts(t *testing.T) {
	secret := "a \"long\" secret, " + strings.Repeat("0123456789", 20)
	r := NewRedactor()
	r.Set([]string{secret})
	escaped := encodings["json"](secret)
	percent := encodings["percent"](secret)
	long := strings.Repeat("word \\n 100% ", 3<<20/13)
	for at := 0; at < len(long)-1000; at += 211_333 {
		at -= at % 13 // between two words: half an escape would change the value itself
		in := long[:at] + escaped + long[at:at+13*70] + percent + long[at:]
		if got := r.Text(in); strings.Contains(got, escaped) || strings.Contains(got, percent) || len(got) > len(in) {
			t.Fatalf("planted at %d survived", at)
		}
		in = long[:at] + escaped + ` password=\"x y\" ` + long[at:]
		doc := []byte(`{"a":"` + strings.ReplaceAll(in, "\\n ", "\\n") + `"}`)
		got := r.JSON(doc)
		if !json.Valid(got) || strings.Contains(string(got), escaped) || strings.Contains(string(got), "x y") {
			t.Fatalf("planted in JSON at %d survived, or the result is no JSON", at)
		}
		if testing.Short() || raceEnabled {
			at += 911_333
		}
	}
}

// TestHardTextsStayLinear would run for minutes if one of them were not.
func TestHardTextsStayLinear(t *testing.T) {
	r := NewRedactor()
	r.Set([]string{"tokentokentoken", strings.Repeat("a", 500)})
	const n = 1 << 18
	for _, piece := range []string{"token", "token:", "token: ", "password=", "\"token\":\"", `\`, `\\"`, "a", "://", "http://a:", "-----BEGIN PRIVATE KEY-----",
		"bearer ", "Basic a", "eyJ", "eyJa.", "%25", "%5c", "key=[\"", "<token>", "authorization: ", "secret ", "token:\"\\", "sk-"} {
		s := strings.Repeat(piece, n/len(piece))
		r.Text(s)
		b, err := json.Marshal([]string{s})
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(r.JSON(b)) {
			t.Errorf("repeated %q: the result is no JSON", piece)
		}
	}
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	if got := string(r.JSON([]byte(deep))); got != deep {
		t.Error("deep JSON was changed")
	}
}

func FuzzPlanted(f *testing.F) {
	f.Add("before ", " after", "hunter2!", byte(0))
	f.Add(`{"a":"`, `"}`, "a\"b\\c d", byte(1))
	f.Add("%", "%2", "100%25", byte(7))
	f.Add(`\`, `\u00`, `\u0041x`, byte(3))
	names := []string{"plain", "json", "query", "path", "std", "raw url", "basic", "json2"}
	f.Fuzz(func(t *testing.T, before, after, secret string, way byte) {
		if len(secret) < minKnown || len(secret) > 200 || strings.Contains(secret, "*") || !utf8.ValidString(secret) {
			t.Skip() // JSON has no way to write what is no UTF-8
		}
		r := NewRedactor()
		r.Set([]string{secret})
		before = strings.TrimRight(before, `\%0123456789abcdefABCDEFxu`) // half an escape would change the value itself
		coded := encodings[names[int(way)%len(names)]](secret)
		text := before + coded + after
		if got := r.Text(text); strings.Contains(got, secret) {
			t.Errorf("Text(%q) = %q still has %q", text, got, secret)
		} else if !strings.Contains(got, mask) {
			t.Errorf("Text(%q) = %q masks nothing of %q", text, got, secret)
		}
		doc, err := json.Marshal(map[string]any{"k": []string{text}, coded: 1})
		if err != nil {
			t.Skip()
		}
		got := r.JSON(doc)
		if !json.Valid(got) {
			t.Fatalf("JSON(%s) = %s is no JSON", doc, got)
		}
		for _, s := range stringsIn(t, got) {
			if strings.Contains(s, secret) {
				t.Errorf("JSON(%s) = %s still has %q", doc, got, secret)
			}
		}
	})
}

func FuzzJSONStaysJSON(f *testing.F) {
	for _, s := range []string{`{"password":"x"}`, `["Bearer abc",1e5]`, `{"a":"{\"token\":1}"}`, `"\ud800"`, `[{"name":"token","value":[1,"a"]}]`, `"-----BEGIN PRIVATE KEY-----\n"`} {
		f.Add([]byte(s), "abcd")
	}
	f.Fuzz(func(t *testing.T, doc []byte, secret string) {
		r := NewRedactor()
		r.Set([]string{secret})
		got := r.JSON(doc)
		if json.Valid(doc) && !json.Valid(got) {
			t.Errorf("JSON(%s) = %s is no JSON", doc, got)
		}
	})
}

// stringsIn lists the texts of a document, keys included, and numbers as they stand.
func stringsIn(t *testing.T, doc []byte) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(doc)))
	dec.UseNumber()
	var all []string
	for {
		tok, err := dec.Token()
		if err != nil {
			return all
		}
		switch v := tok.(type) {
		case string:
			all = append(all, v)
		case json.Number:
			all = append(all, v.String())
		}
	}
}

func BenchmarkRedactor(b *testing.B) {
	r := NewRedactor()
	var secrets []string
	for i := range 50 {
		secrets = append(secrets, fmt.Sprintf("secret-value-number-%d-%x", i, i*7919))
	}
	r.Set(secrets)
	line := "call finished server=files method=tools/call name=read_file duration=1.234ms outcome=ok session=ses_0123456789"
	doc := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("the quick brown fox jumps over the lazy dog. ", 90) + `"}],"isError":false}`)
	code := strings.Repeat("if err := json.Unmarshal(b, &v); err != nil {\\n\\treturn fmt.Errorf(\\\"read %s: %w\\\", name, err)\\n}\\n", 40)
	for _, bb := range []struct {
		name string
		size int
		run  func()
	}{
		{"line", len(line), func() { r.Text(line) }},
		{"line with a secret", len(line), func() { r.Text(line + " token=abc") }},
		{"JSON 4 KiB", len(doc), func() { r.JSON(doc) }},
		{"escaped code 4 KiB", len(code), func() { r.JSON([]byte(`["` + code + `"]`)) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.SetBytes(int64(bb.size))
			b.ReportAllocs()
			for b.Loop() {
				bb.run()
			}
		})
	}
}

// Secrets of runs don't push out those of the gateway, and those that come again stay.
func TestSecretsOfRuns(t *testing.T) {
	r := NewRedactor()
	r.Learn("token-of-the-gateway")
	for i := range 2 * maxLearned {
		want := i >= maxLearned-1 // the lasting one is there as well
		if dropped := r.LearnOfRun([]string{"lasting-secret", fmt.Sprintf("secret-of-run-%d-", i)}); dropped != want {
			t.Fatalf("after %d runs others are known no longer: %v", i, dropped)
		}
	}
	for text, masked := range map[string]bool{"token-of-the-gateway": true, "lasting-secret": true, "secret-of-run-500-": true, "secret-of-run-1-": false} {
		if got := r.Text(text) != text; got != masked {
			t.Errorf("%s: masked %v", text, got)
		}
	}
}
