package model

import "testing"

func TestMasked(t *testing.T) {
	const key = "sk-test-0123456789"
	for text, want := range map[string]string{
		"plain":                       "plain",
		"the key " + key + " is bad":  "the key **** is bad",
		`"` + key + `", ` + key:       `"****", ****`,
		"sk-test-****6789: no":        "**** no",
		"two\nlines\tand\x1b[31m red": "two lines and [31m red",
		"":                            "",
		"\xff":                        "?",
	} {
		if got := masked(text, key); got != want {
			t.Errorf("%q is masked as %q, want %q", text, got, want)
		}
	}
	if got := masked("xx", "x"); got != "xx" {
		t.Errorf("a short key masks %q", got)
	}
}
